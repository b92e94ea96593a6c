package api

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
)

// TypeAvroSchema is the media type of an Avro schema.
const TypeAvroSchema = "application/vnd.apache.avro+json"

// Contract is one version of a contract.
type Contract struct {
	Subject  string          `json:"subject"`
	Version  int             `json:"version"`
	Type     string          `json:"type" enum:"json,avro" doc:"JSON Schema or Avro"`
	Digest   string          `json:"digest"`
	Engine   headgate.Engine `json:"engine,omitempty"`
	Why      string          `json:"why,omitempty" doc:"Why the engine is not the fast one"`
	Draft    bool            `json:"draft,omitempty" doc:"Inferred from a first payload"`
	Deleted  bool            `json:"deleted,omitempty"`
	Created  time.Time       `json:"created,omitzero"`
	By       string          `json:"by,omitempty" doc:"Principal who registered it"`
	Warnings []Warning       `json:"warnings,omitempty"`
	// Schema is the schema as registered; only in the answer to one contract.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Guesses are there for viewers, in the answer to one contract.
	Guesses []headgate.Guess `json:"guesses,omitempty" doc:"Property names that refused payloads had and the contract has not, the most frequent first"`
}

// Warning is a weakness of a contract that was registered all the same.
type Warning struct {
	Code   string `json:"code"`
	At     string `json:"at" doc:"JSON Pointer into the schema"`
	Detail string `json:"detail"`
	Advice bool   `json:"advice,omitempty" doc:"Most contracts can live with it; linting alone tells it"`
}

// Contracts is a page of contracts.
type Contracts struct {
	Contracts []Contract `json:"contracts"`
	Next      string     `json:"next,omitempty" doc:"Cursor of the next page"`
}

// Deleted is the answer to a deletion.
type Deleted struct {
	Deleted int `json:"deleted"`
}

// Checked is the answer to a payload that passed its contract.
type Checked struct {
	Valid    bool                 `json:"valid"`
	Contract headgate.ContractRef `json:"contract"`
	// WouldBeMended: the payload is not valid as it is; publishing it mends it
	// by the first of the proposals and admits it.
	WouldBeMended bool                 `json:"would_be_mended,omitempty" doc:"Publishing mends the payload, by the first of proposals, and admits it"`
	Violations    []headgate.Violation `json:"violations,omitempty" doc:"What the payload is without being mended"`
	Proposals     []headgate.Proposal  `json:"proposals,omitempty"`
}

// SubscriptionSpec is what a user says of a subscription.
type SubscriptionSpec struct {
	Types       []string `json:"types" doc:"Type patterns"`
	When        string   `json:"when,omitempty" doc:"CEL condition over the event"`
	As          string   `json:"as,omitempty" doc:"Principal that consumes; default: who creates it"`
	From        string   `json:"from,omitempty" doc:"now (default), beginning, an RFC 3339 time, or STREAM/PARTITION:OFFSET"`
	Order       string   `json:"order,omitempty" doc:"strict (default), release or none"`
	MaxBlock    Duration `json:"max_block,omitempty" doc:"How long a failing event may block its key; default 10m"`
	Concurrency int      `json:"concurrency,omitempty" doc:"Deliveries in flight; default 64"`
	Attempts    int      `json:"attempts,omitempty" doc:"By default the node's defaults.attempts, 8"`
	Backoff     string   `json:"backoff,omitempty" doc:"MIN..MAX; by default the node's defaults.backoff, 1s..10m"`
	Claim       Duration `json:"claim,omitempty" doc:"Life of a claim; default 30s"`
	Deliver     Deliver  `json:"deliver,omitzero" doc:"Exactly one member; pull by default"`
	Dedupe      string   `json:"dedupe,omitempty" doc:"durable (default), window or none"`
	Lease       string   `json:"lease,omitempty" doc:"Template of the resource whose lease every delivery is worked on under, such as ticket/{data.id}"`
	Expire      Duration `json:"expire,omitempty" doc:"Events older than this expire"`
	Inactive    Duration `json:"inactive,omitempty" doc:"The subscription is removed once nobody pulled from it for so long; at least 1m; default: it is kept"`
}

// Deliver says how deliveries leave.
type Deliver struct {
	Pull    *struct{} `json:"pull,omitempty"`
	Handler *struct{} `json:"handler,omitempty" doc:"A function of the node's own process"`
}

// Subscription is a subscription.
type Subscription struct {
	Name string `json:"name"`
	SubscriptionSpec
	Paused  bool      `json:"paused"`
	Created time.Time `json:"created"`
	Managed string    `json:"managed" doc:"config or api"`
	Retain  Duration  `json:"retain,omitempty" doc:"How long the streams that it reads keep events, the longest of them: an inbox must remember for longer"`
}

// Subscriptions is a page of subscriptions.
type Subscriptions struct {
	Subscriptions []Subscription `json:"subscriptions"`
	Next          string         `json:"next,omitempty"`
}

// Principal is a principal. Tokens are never shown again.
type Principal struct {
	Name     string          `json:"name"`
	Kind     headgate.Kind   `json:"kind" enum:"human,agent,system"`
	Roles    []headgate.Role `json:"roles,omitempty"`
	Emit     []string        `json:"emit,omitempty" doc:"Type patterns that may be published"`
	Listen   []string        `json:"listen,omitempty" doc:"Type patterns that may be consumed"`
	Lease    []string        `json:"lease,omitempty" doc:"Resource patterns that may be leased: a resource, PREFIX/* or *"`
	Roots    *RootRight      `json:"roots,omitempty" doc:"Right to publish without a cause; absent means none"`
	Disabled bool            `json:"disabled,omitempty"`
	Managed  string          `json:"managed,omitempty"`
	Created  time.Time       `json:"created,omitzero"`
}

// RootRight is the right to start causal trees.
type RootRight struct {
	Rate  float64 `json:"rate,omitempty" doc:"Roots a second; 0 means the default rate"`
	Burst int     `json:"burst,omitempty"`
}

// Principals is a page of principals.
type Principals struct {
	Principals []Principal `json:"principals"`
	Next       string      `json:"next,omitempty"`
}

// NewPrincipal is the answer to adding a principal or rotating its tokens.
type NewPrincipal struct {
	Principal
	// Token is shown this once.
	Token string `json:"token" doc:"Bearer token; shown this once"`
}

// RotateRequest replaces the tokens of a principal.
type RotateRequest struct {
	Grace Duration `json:"grace,omitempty" doc:"How long earlier tokens stay valid; default 0"`
}

// Quarantined is one record, as lists show it.
type Quarantined struct {
	QID          string    `json:"qid"`
	Kind         string    `json:"kind" doc:"refused, extinguished, parked, expired or mended"`
	Reason       string    `json:"reason"`
	State        string    `json:"state"`
	Fingerprint  string    `json:"fingerprint"`
	Family       string    `json:"family,omitempty"`
	Source       string    `json:"source,omitempty"`
	ID           string    `json:"id,omitempty"`
	Type         string    `json:"type,omitempty"`
	RootID       string    `json:"rootid,omitempty"`
	Cause        string    `json:"causationid,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Stream       string    `json:"stream,omitempty"`
	Position     string    `json:"position,omitempty"`
	Principal    string    `json:"principal,omitempty"`
	Message      string    `json:"message"`
	Created      time.Time `json:"created"`
	Expires      time.Time `json:"expires"`
}

// QuarantinedWhole is one record with its payload and all that is known.
type QuarantinedWhole struct {
	Quarantined
	ContentType string `json:"content_type,omitempty"`
	// Body is the payload as text, never parsed; BodyBase64 instead when it is
	// Avro or not valid UTF-8.
	Body        string `json:"body,omitempty" doc:"Payload as text, byte for byte"`
	BodyBase64  []byte `json:"body_base64,omitempty" doc:"Payload when it is Avro or not UTF-8"`
	BodyClipped bool   `json:"body_clipped,omitempty" doc:"The payload was longer than what is kept"`
	// BodyJSON is what a payload in Avro says; absent when it cannot be read.
	BodyJSON        string          `json:"body_json,omitempty" doc:"Payload in Avro as JSON text, at most 64 KiB of it; absent when no version of its contract reads it"`
	BodyJSONClipped bool            `json:"body_json_clipped,omitempty" doc:"The JSON text was longer"`
	BodyContract    string          `json:"body_contract,omitempty" doc:"SUBJECT@VERSION that body_json was read by"`
	BodySHA256      string          `json:"body_sha256,omitempty"`
	Detail          json.RawMessage `json:"detail,omitempty" doc:"Report, attempts, headers and telemetry"`
}

// Quarantine is a page of records, newest first.
type Quarantine struct {
	Records []Quarantined `json:"records"`
	Next    string        `json:"next,omitempty"`
}

// QuarantineGroup sums up the records of one fingerprint.
type QuarantineGroup struct {
	Fingerprint  string    `json:"fingerprint"`
	Family       string    `json:"family,omitempty"`
	Kind         string    `json:"kind"`
	Reason       string    `json:"reason"`
	Type         string    `json:"type,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Message      string    `json:"message"`
	Count        int       `json:"count"`
	First        time.Time `json:"first"`
	Last         time.Time `json:"last"`
	Sample       string    `json:"sample" doc:"Newest record"`
}

// QuarantineGroups lists groups, largest first, and what was only counted.
type QuarantineGroups struct {
	Groups   []QuarantineGroup    `json:"groups"`
	Overflow []QuarantineOverflow `json:"overflow,omitempty"`
}

// QuarantineOverflow counts refusals beyond a quota that were not kept.
type QuarantineOverflow struct {
	Principal string    `json:"principal"`
	Reason    string    `json:"reason"`
	Type      string    `json:"type"`
	Count     uint64    `json:"count"`
	Last      time.Time `json:"last"`
}

// Whoami describes the caller.
type Whoami struct {
	Principal
	Version string `json:"version,omitempty" doc:"Version of the node"`
}

// Doctor is the node's own diagnosis.
type Doctor struct {
	OK           bool                 `json:"ok" doc:"False when a problem is listed"`
	Version      string               `json:"version"`
	Time         time.Time            `json:"time" doc:"The node's clock"`
	Durability   Durability           `json:"durability"`
	Conservation []Balance            `json:"conservation" doc:"The conservation law, per subscription"`
	Streams      []StreamStat         `json:"streams"`
	Quarantine   []QuarantineOverflow `json:"quarantine_overflow,omitempty"`
	Problems     []Finding            `json:"problems,omitempty"`
}

// Durability says in words what an acknowledgement survives.
type Durability struct {
	Mode       string `json:"mode" doc:"memory, relaxed, fsync or quorum"`
	Streams    string `json:"streams" doc:"Durability of events, in words"`
	State      string `json:"state" doc:"Durability of control state, in words"`
	Store      string `json:"store" doc:"Driver of the store"`
	Schema     int    `json:"schema" doc:"Version of the store's tables"`
	EventBytes int    `json:"event_bytes" doc:"Largest event"`
	Dedupe     string `json:"dedupe" doc:"Window of admission dedupe, in words"`
}

// Balance is the conservation law of one subscription.
type Balance struct {
	Subscription string    `json:"subscription"`
	Accepted     uint64    `json:"accepted"`
	Pending      uint64    `json:"pending"`
	InFlight     uint64    `json:"in_flight"`
	Settled      uint64    `json:"settled"`
	Unmatched    uint64    `json:"unmatched"`
	Parked       uint64    `json:"parked"`
	Extinguished uint64    `json:"extinguished"`
	Expired      uint64    `json:"expired"`
	Discarded    uint64    `json:"discarded"`
	Trimmed      uint64    `json:"trimmed"`
	Lag          uint64    `json:"lag"`
	Oldest       time.Time `json:"oldest,omitzero"`
	Holds        bool      `json:"holds"`
	Detail       string    `json:"detail,omitempty"`
}

// StreamStat describes one stream.
type StreamStat struct {
	Stream     string `json:"stream"`
	Partitions int    `json:"partitions"`
	Stored     uint64 `json:"stored" doc:"Events ever stored"`
	Kept       uint64 `json:"kept" doc:"Events kept now"`
	Bytes      int64  `json:"bytes"`
}

// Finding is one thing that is wrong or unsafe.
type Finding struct {
	Severity string `json:"severity" doc:"error or warning"`
	What     string `json:"what"`
	Fix      string `json:"fix,omitempty"`
}

// ContractExport is a contract in another form.
type ContractExport struct {
	Contract headgate.ContractRef `json:"contract"`
	Format   string               `json:"format" doc:"strict"`
	Schema   json.RawMessage      `json:"schema" doc:"The export: closed objects, every property required"`
	// NullMeansAbsent are JSON Pointers into Schema.
	NullMeansAbsent []string `json:"null_means_absent,omitempty" doc:"Properties of the export whose value null stands for a property that is left out: take them out before publishing"`
	Exact           bool     `json:"exact" doc:"Every document of the export, without those nulls, is valid under the contract"`
	Losses          []Loss   `json:"losses,omitempty" doc:"What the export narrows and loosens"`
	Exceeds         []string `json:"exceeds,omitempty" doc:"Limits of decoders that the export is over"`
}

// Loss is a part of a contract that its export does not say.
type Loss struct {
	At      string `json:"at" doc:"JSON Pointer into the contract"`
	Keyword string `json:"keyword"`
	Effect  string `json:"effect" doc:"narrowed: the export allows less; loosened: it allows more"`
	Detail  string `json:"detail"`
}

// Linted is what there is to say about a schema.
type Linted struct {
	Warnings []Warning `json:"warnings"`
}

// Rechecked compares a recorded verdict with the one that the payload gets now.
type Rechecked struct {
	QID            string               `json:"qid"`
	Same           bool                 `json:"same" doc:"Both verdicts are equal, byte for byte"`
	SameContract   bool                 `json:"same_contract" doc:"Schema, policy and engine are those of the record"`
	Valid          bool                 `json:"valid" doc:"The payload passes now"`
	Recorded       headgate.ContractRef `json:"recorded" doc:"Contract that refused it"`
	Contract       headgate.ContractRef `json:"contract" doc:"Contract that was asked now"`
	BodySHA256     string               `json:"body_sha256"`
	RecordedDigest string               `json:"recorded_digest" doc:"Of the verdict in the record"`
	Digest         string               `json:"digest" doc:"Of the verdict now"`
	Violations     []headgate.Violation `json:"violations,omitempty"`
	Truncated      int                  `json:"truncated,omitempty"`
	Proposals      []headgate.Proposal  `json:"proposals,omitempty"`
}
