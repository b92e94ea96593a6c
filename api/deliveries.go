package api

import (
	"encoding/json"
	"time"
)

// PullRequest asks for deliveries.
type PullRequest struct {
	Max  int      `json:"max,omitempty" doc:"Deliveries at most; default 1, at most 1000"`
	Data string   `json:"data,omitempty" doc:"Encoding of the data of Avro contracts: json or avro; default: as it was sent"`
	Wait Duration `json:"wait,omitempty" doc:"How long to wait for the first, such as \"30s\"; default 0, at most 60s"`
}

// PullResponse is the answer to a pull; empty after the wait.
type PullResponse struct {
	Deliveries []Delivery `json:"deliveries"`
}

// Delivery is one event handed to a consumer under a claim.
type Delivery struct {
	Event    json.RawMessage `json:"event" doc:"The event in the CloudEvents JSON format, header attributes included"`
	Stream   string          `json:"stream"`
	Position string          `json:"position"`
	Claim    string          `json:"claim" doc:"Names the delivery in settle"`
	Cause    string          `json:"cause" doc:"Causal token: send it in Headgate-Cause to publish children"`
	Attempt  int             `json:"attempt"`
	Deadline time.Time       `json:"deadline" doc:"When the claim ends"`
	Lease    *DeliveryLease  `json:"lease,omitempty" doc:"The lease that the delivery is worked on under, if the subscription asks for one"`
}

// DeliveryLease is the lease that comes with a delivery. It is released when
// the delivery is settled.
type DeliveryLease struct {
	Resource  string `json:"resource"`
	Epoch     int64  `json:"epoch"`
	EpochText string `json:"epoch_text" doc:"The epoch as text"`
	Token     string `json:"token" doc:"Send it in Headgate-Fence with everything that is written for the delivery"`
}

// SettleRequest ends claims.
type SettleRequest struct {
	Settle []Settlement `json:"settle" doc:"At most 1000"`
}

// Settlement is what a consumer says of one claim.
type Settlement struct {
	Claim   string   `json:"claim"`
	Outcome string   `json:"outcome" enum:"ack,retry,reject"`
	Delay   Duration `json:"delay,omitempty" doc:"With retry; default: the subscription's backoff"`
	Reason  string   `json:"reason,omitempty" doc:"With retry and reject; kept with the attempt"`
	// Emit are children of the delivery, in the CloudEvents JSON format.
	// specversion, id and source may be left out: they default to "1.0", a new
	// id, and the principal's own source.
	Emit []json.RawMessage `json:"emit,omitempty" doc:"Children in the CloudEvents JSON format; specversion, id and source may be left out"`
}

// SettleResponse is the answer to a settle, in input order.
type SettleResponse struct {
	Settled int            `json:"settled"`
	Open    int            `json:"open" doc:"Claims that were not settled"`
	Results []SettleResult `json:"results"`
}

// SettleResult is what became of one claim.
type SettleResult struct {
	Claim   string `json:"claim"`
	Settled bool   `json:"settled"`
	Status  int    `json:"status" doc:"200, or the status of the code"`
	Refusal
	// Emitted has one result for each emitted event. Causal refusals do not
	// keep the claim open; others do, so that the consumer can mend and settle
	// again.
	Emitted []Result `json:"emitted,omitempty"`
}
