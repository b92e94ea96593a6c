package api

// HeaderFence carries lease tokens, comma-separated: the request's writes are
// refused unless every one of the leases is current.
const HeaderFence = "Headgate-Fence"

// AcquireRequest asks for the lease on the resource of the path.
type AcquireRequest struct {
	Also      []string `json:"also,omitempty" doc:"Further resources: all are granted together or none"`
	Worker    string   `json:"worker,omitempty" doc:"Which of the principal's workers asks, for people to read"`
	TTLMS     int64    `json:"ttl_ms,omitempty" doc:"How long the lease lasts without a renewal; default 30000, 100 to 3600000"`
	WaitMS    int64    `json:"wait_ms,omitempty" doc:"How long to wait for the lease; default 0, at most 60000"`
	MaxHoldMS int64    `json:"max_hold_ms,omitempty" doc:"No renewal goes beyond this; default: none"`
	RequestID string   `json:"request_id,omitempty" doc:"Names this call, so that repeating it after a lost answer returns the same grant"`
	Audience  []string `json:"audience,omitempty" doc:"Targets beside Headgate that the token is for"`
	Seal      []string `json:"seal,omitempty" doc:"Configured targets that must know of the lease before the answer, and whom the token is then for, too; when one cannot be told in time, the lease is given back"`
}

// Lease is a granted lease. Durations count from when the request was sent,
// on the holder's monotonic clock.
type Lease struct {
	Resource    string `json:"resource"`
	Epoch       int64  `json:"epoch" doc:"Rises with every grant and every end of one"`
	EpochText   string `json:"epoch_text" doc:"The epoch as text"`
	Token       string `json:"token" doc:"Send it in Headgate-Fence with every write; keep it secret"`
	TTLMS       int64  `json:"ttl_ms,omitempty"`
	ExpiresInMS int64  `json:"expires_in_ms" doc:"What is left"`
	Again       bool   `json:"again,omitempty" doc:"The request id was granted before"`
	Late        bool   `json:"late,omitempty" doc:"Renewed after it had run out, before anybody took it"`
	// Also are the leases on the further resources of the request.
	Also []Lease `json:"also,omitempty" doc:"Leases on the further resources"`
}

// LeaseRequest names a lease by its token: what renewals and releases take.
type LeaseRequest struct {
	Token string `json:"token"`
	TTLMS int64  `json:"ttl_ms,omitempty" doc:"With renew; default: as when it was acquired"`
}

// RevokeRequest takes a lease from its holder.
type RevokeRequest struct {
	Mode       string `json:"mode,omitempty" enum:"drain,terminate" doc:"drain (default) lets the holder release; terminate does not wait, and ends sessions of the node's own database that hold the lease in a transaction"`
	DeadlineMS int64  `json:"deadline_ms,omitempty" doc:"How long to wait for the holder and for transactions under the lease in the node's own database; default 10000, at most 300000"`
}

// Revoked is the answer to a revocation.
type Revoked struct {
	Epoch     int64  `json:"epoch" doc:"Above the epoch that was revoked"`
	EpochText string `json:"epoch_text"`
	DrainedMS int64  `json:"drained_ms" doc:"How long the holder, and transactions under the lease, were waited for"`
	Killed    bool   `json:"killed" doc:"The holder had not released, whoever ended the lease"`
	// Sessions are those that this call ended.
	Sessions []EndedSession `json:"sessions,omitempty" doc:"Sessions that were ended: they held the lease in a transaction of the node's own database, or of a target's"`
	// Untold are targets that do not know of the end.
	Untold []string `json:"untold,omitempty" doc:"Targets that the lease was sealed at and that could not be told: there the holder's writes may still pass"`
}

// EndedSession is a session of PostgreSQL. Its names are its own words.
type EndedSession struct {
	PID         int    `json:"pid"`
	User        string `json:"user"`
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty" doc:"Of its client"`
	Target      string `json:"target,omitempty" doc:"The sealed target whose database it is of; absent: the node's own"`
	OpenMS      int64  `json:"open_ms,omitempty" doc:"How long its transaction was open"`
}

// Released is the answer to a release.
type Released struct {
	Released bool `json:"released"`
}

// LeaseState is a lease as anybody may see it.
type LeaseState struct {
	Resource    string   `json:"resource"`
	Epoch       int64    `json:"epoch" doc:"0: never leased"`
	EpochText   string   `json:"epoch_text"`
	Held        bool     `json:"held"`
	Holder      string   `json:"holder,omitempty"`
	Worker      string   `json:"worker,omitempty"`
	Closing     bool     `json:"closing,omitempty" doc:"It is being revoked"`
	TTLMS       int64    `json:"ttl_ms,omitempty"`
	ExpiresInMS int64    `json:"expires_in_ms,omitempty" doc:"What is left; 0 also when it ran out, and nobody has taken it"`
	HeldForMS   int64    `json:"held_for_ms,omitempty"`
	Audience    []string `json:"audience,omitempty"`
}

// Leases is a page of leases, by resource.
type Leases struct {
	Leases []LeaseState `json:"leases"`
	Next   string       `json:"next,omitempty"`
}

// VerifyRequest asks whether a token is good for a target.
type VerifyRequest struct {
	Token  string `json:"token"`
	Target string `json:"target,omitempty" doc:"Default: headgate"`
}

// Verified is the answer to a token that is genuine, meant for the target and
// current.
type Verified struct {
	Resource    string `json:"resource"`
	Epoch       int64  `json:"epoch"`
	EpochText   string `json:"epoch_text"`
	Holder      string `json:"holder"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}

// FenceKeys are the keys by which lease tokens can be verified. Source: RFC
// 8037, section 2.
type FenceKeys struct {
	Issuer string     `json:"issuer"`
	Keys   []FenceKey `json:"keys"`
}

// FenceKey is one Ed25519 key as a JSON Web Key.
type FenceKey struct {
	KeyType string `json:"kty"`
	Curve   string `json:"crv"`
	ID      string `json:"kid"`
	X       string `json:"x" doc:"The public key, base64url"`
}
