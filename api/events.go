package api

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
)

// Published is the answer to one accepted event.
type Published struct {
	ID        string `json:"id" doc:"Event id; minted when the producer sent none"`
	Stream    string `json:"stream" doc:"Stream that took the event"`
	Position  string `json:"position,omitempty" doc:"PARTITION:OFFSET within the stream; absent while pending"`
	Pending   bool   `json:"pending,omitempty" doc:"Committed under a lease, and on its way into the stream"`
	RootID    string `json:"rootid" doc:"Id of the event that the causal tree began with"`
	TTL       int    `json:"ttl" doc:"Hops left"`
	Hop       int    `json:"hop" doc:"Hops from the root"`
	Contract  string `json:"contract" doc:"SUBJECT@VERSION that the payload passed"`
	Draft     bool   `json:"draft,omitempty" doc:"The contract was inferred from a first payload"`
	Duplicate bool   `json:"duplicate" doc:"The event was stored before; the answer describes the first time"`
	// Ignored lists header attributes that the client sent and that only the
	// perimeter sets.
	Ignored []string `json:"ignored,omitempty" doc:"Attributes that were ignored because only the perimeter sets them"`
	// Mended is the quarantine record that keeps the payload as it was sent.
	Mended string `json:"mended,omitempty" doc:"The payload was mended as its contract asks: the quarantine record that keeps the original"`
}

// Result is what became of one event among several: the members of
// [Published] when its status is 202, those of [Refusal] otherwise.
type Result struct {
	ID     string `json:"id,omitempty" doc:"Event id, if it could be read or was minted"`
	Status int    `json:"status" doc:"202, or the status of the code"`

	Stream    string   `json:"stream,omitempty"`
	Position  string   `json:"position,omitempty"`
	Pending   bool     `json:"pending,omitempty"`
	RootID    string   `json:"rootid,omitempty"`
	TTL       int      `json:"ttl,omitempty"`
	Hop       int      `json:"hop,omitempty"`
	Contract  string   `json:"contract,omitempty"`
	Draft     bool     `json:"draft,omitempty"`
	Duplicate bool     `json:"duplicate,omitempty"`
	Ignored   []string `json:"ignored,omitempty"`
	Mended    string   `json:"mended,omitempty"`

	Refusal
}

// Results is the answer to several events, in input order.
type Results struct {
	Accepted int      `json:"accepted" doc:"Events that were stored durably, duplicates included"`
	Refused  int      `json:"refused" doc:"Events that were refused"`
	Results  []Result `json:"results" doc:"One result for each event, in input order"`
	// Stopped says why the rest of the input was not read. What is not among
	// the results was not processed.
	Stopped *Refusal `json:"stopped,omitempty" doc:"Why the rest of the input was not read"`
}

// Event is one stored event with where it is.
type Event struct {
	// Event is in the CloudEvents JSON format; null when retention removed it.
	Event     json.RawMessage `json:"event" doc:"The event in the CloudEvents JSON format; null when retention removed it"`
	ID        string          `json:"id"`
	Source    string          `json:"source"`
	Type      string          `json:"type"`
	Subject   string          `json:"subject,omitempty"`
	Stream    string          `json:"stream"`
	Position  string          `json:"position"`
	RootID    string          `json:"rootid"`
	Causes    []string        `json:"causes,omitempty"`
	TTL       int             `json:"ttl"`
	Hop       int             `json:"hop"`
	Origin    headgate.Origin `json:"origin"`
	Principal string          `json:"principal"`
	Contract  string          `json:"contract"`
	Recorded  time.Time       `json:"recorded"`
	Mended    string          `json:"mended,omitempty" doc:"Quarantine record that keeps the payload as it was sent, where it was mended at the gate"`
}

// Events is the answer to a look-up by id: one event, unless several sources
// used the same id.
type Events struct {
	Events []Event `json:"events"`
}

// Explanation says why an event went where it went.
type Explanation struct {
	Admitted      bool          `json:"admitted" doc:"False when no stream took the event; then only the quarantine knows of it"`
	Event         Event         `json:"event,omitzero" doc:"Where the event is; absent unless it was admitted"`
	Others        []Event       `json:"others,omitempty" doc:"Further events with the same id, of other sources"`
	Subscriptions []State       `json:"subscriptions" doc:"What every subscription makes of the event"`
	Quarantine    []Quarantined `json:"quarantine,omitempty" doc:"What was recorded of the id, newest first: refused publishes and parked deliveries; at most 100"`
}

// State is what one subscription makes of one event.
type State struct {
	Subscription string    `json:"subscription"`
	Matched      bool      `json:"matched"`
	Why          string    `json:"why" doc:"Why it matched or not"`
	State        string    `json:"state" doc:"pending, in_flight, settled, unmatched, parked, extinguished, expired, discarded or not_entitled"`
	Attempts     int       `json:"attempts,omitempty"`
	Due          time.Time `json:"due,omitzero"`
	History      []Attempt `json:"history,omitempty"`
	Quarantine   string    `json:"quarantine,omitempty"`
}

// Attempt is one attempt of a delivery.
type Attempt struct {
	N         int       `json:"n"`
	Start     time.Time `json:"start"`
	Duration  Duration  `json:"duration"`
	Principal string    `json:"principal,omitempty"`
	Outcome   string    `json:"outcome"`
	Error     string    `json:"error,omitempty"`
}

// Tree is the causal tree of one root.
type Tree struct {
	Root   *Node `json:"root"`
	Events int   `json:"events" doc:"Events ever admitted under the root, as far as the index knows"`
	Depth  int   `json:"depth" doc:"Greatest hop"`
	Cuts   int   `json:"cuts" doc:"Refusals by causal limits"`
	Shown  int   `json:"shown" doc:"Events in this answer"`
	Lag    int64 `json:"lag" doc:"Stored events that the index has not seen yet"`
	Gas    Gas   `json:"gas"`
}

// Gas is the budget of a root.
type Gas struct {
	Total   int  `json:"total" doc:"Events that may ever be admitted under the root"`
	Debited int  `json:"debited" doc:"Units handed out to nodes so far"`
	Local   int  `json:"local" doc:"Units that this node holds and has not used"`
	Left    int  `json:"left" doc:"Units left, as this node knows it"`
	Known   bool `json:"known" doc:"False when this node does not know the root"`
}

// Node is one event of a tree. A node whose event the caller may not see has
// Hidden set, and neither id nor type.
type Node struct {
	ID        string    `json:"id,omitempty"`
	Type      string    `json:"type,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Position  string    `json:"position,omitempty"`
	Stream    string    `json:"stream,omitempty"`
	TTL       int       `json:"ttl"`
	Hop       int       `json:"hop"`
	Recorded  time.Time `json:"recorded,omitzero"`
	Hidden    bool      `json:"hidden,omitempty"`
	Cuts      []Cut     `json:"cuts,omitempty" doc:"Where causal limits ended the tree below this event"`
	Children  []*Node   `json:"children,omitempty"`
}

// Cut is a set of equal refusals of one event's children.
type Cut struct {
	Reason     string `json:"reason"`
	Type       string `json:"type"`
	Principal  string `json:"principal"`
	Count      int    `json:"count"`
	Quarantine string `json:"quarantine,omitempty"`
}

// TailEvent is the data of an "event" message of the live stream.
type TailEvent struct {
	Stream   string          `json:"stream"`
	Position string          `json:"position"`
	Event    json.RawMessage `json:"event"`
}

// TailGap is the data of a "gap" message: events that the stream no longer
// holds or that the reader was too slow for.
type TailGap struct {
	Stream  string `json:"stream"`
	From    string `json:"from" doc:"First position that is missing"`
	To      string `json:"to" doc:"Position after the last one missing"`
	Missing uint64 `json:"missing"`
}
