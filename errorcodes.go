package headgate

// The closed list of codes. docs/errors.md is generated from [Codes].
const (
	CodeSyntax               Code = "syntax"
	CodeBadEnvelope          Code = "bad_envelope"
	CodeInvalidArgument      Code = "invalid_argument"
	CodeInvalidConfig        Code = "invalid_config"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeForbidden            Code = "forbidden"
	CodeTypeNotAllowed       Code = "type_not_allowed"
	CodeOriginNotAllowed     Code = "origin_not_allowed"
	CodeRootNotAllowed       Code = "root_not_allowed"
	CodeTokenInvalid         Code = "token_invalid"
	CodeTokenForeign         Code = "token_foreign"
	CodeTokenExpired         Code = "token_expired"
	CodeTokenSuperseded      Code = "token_superseded"
	CodeTTLExhausted         Code = "ttl_exhausted"
	CodeGasExhausted         Code = "gas_exhausted"
	CodeLoop                 Code = "loop"
	CodeBreadthExhausted     Code = "breadth_exhausted"
	CodeExpired              Code = "expired"
	CodeStaleFence           Code = "stale_fence"
	CodeFenceMissing         Code = "fence_missing"
	CodeFenceInvalid         Code = "fence_invalid"
	CodeFenceForeign         Code = "fence_foreign"
	CodeFenceConflict        Code = "fence_conflict"
	CodeLeaseHeld            Code = "lease_held"
	CodeLeaseClosing         Code = "lease_closing"
	CodeLeaseExpired         Code = "lease_expired"
	CodeLeaseLost            Code = "lease_lost"
	CodeSealFailed           Code = "seal_failed"
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeContractUnknown      Code = "contract_unknown"
	CodeContractViolation    Code = "contract_violation"
	CodeContractInvalid      Code = "contract_invalid"
	CodeContractIncompatible Code = "contract_incompatible"
	CodeStreamUnknown        Code = "stream_unknown"
	CodeStreamsForeign       Code = "streams_foreign"
	CodeNotFound             Code = "not_found"
	CodeConflict             Code = "conflict"
	CodeIDTaken              Code = "id_taken"
	CodeClaimExpired         Code = "claim_expired"
	CodeClaimSuperseded      Code = "claim_superseded"
	CodeInProgress           Code = "in_progress"
	CodeTooOld               Code = "too_old"
	CodeRateLimited          Code = "rate_limited"
	CodeOverloaded           Code = "overloaded"
	CodeNotDurable           Code = "not_durable"
	CodeUnknownOutcome       Code = "unknown_outcome"
	CodeDiskFull             Code = "disk_full"
	CodeStreamFull           Code = "stream_full"
	CodeHeldBack             Code = "held_back"
	CodeQuarantineFull       Code = "quarantine_full"
	CodeDraining             Code = "draining"
	CodeUnavailable          Code = "unavailable"
	CodeTimeout              Code = "timeout"
	CodeCanceled             Code = "canceled"
	CodeInternal             Code = "internal"
)

// Codes returns a copy of the closed table of codes, in the order of the
// documentation.
func Codes() []CodeInfo {
	table := codes
	return table[:]
}

var codes = [...]CodeInfo{
	{CodeSyntax, 400, NotApplied, RetryAfterFix, "The body is not well-formed", "Send one well-formed JSON text; the offset says where it broke."},
	{CodeBadEnvelope, 400, NotApplied, RetryAfterFix, "The event's envelope breaks the CloudEvents specification", "Correct the attribute that is named."},
	{CodeInvalidArgument, 400, NotApplied, RetryAfterFix, "An argument is missing or out of range", "Correct the argument that is named."},
	{CodeInvalidConfig, 400, NotApplied, RetryAfterFix, "The configuration is invalid", "Correct every setting that is named."},
	{CodeUnauthenticated, 401, NotApplied, RetryAfterFix, "No valid token came with the request", "Send a valid bearer token in the Authorization header."},
	{CodeForbidden, 403, NotApplied, RetryNever, "The principal may not do this", "Ask an administrator for the role that is named."},
	{CodeTypeNotAllowed, 403, NotApplied, RetryNever, "The principal may not publish or consume this type", "Ask an administrator to add the type to the principal's list."},
	{CodeOriginNotAllowed, 403, NotApplied, RetryNever, "The type is not allowed under a root of this origin class", "Publish it under a root of an allowed origin class."},
	{CodeRootNotAllowed, 403, NotApplied, RetryAfterFix, "The principal may not start a causal tree", "Publish with the causal token of the delivery that you react to."},
	{CodeTokenInvalid, 403, NotApplied, RetryAfterFix, "A causal token is not genuine", "Send the token exactly as it came with the delivery."},
	{CodeTokenForeign, 403, NotApplied, RetryNever, "A causal token belongs to another principal", "Use only tokens of your own deliveries."},
	{CodeTokenExpired, 409, NotApplied, RetryNever, "A causal token has expired", "Publish sooner after the delivery; do not retry with this token."},
	{CodeTokenSuperseded, 409, NotApplied, RetryNever, "The delivery behind a causal token was claimed again by another worker", "Stop working on this delivery; the newer claim has it."},
	{CodeTTLExhausted, 409, NotApplied, RetryNever, "The causal tree reached its greatest depth", "Finish with what you have; do not publish further events from this delivery."},
	{CodeGasExhausted, 409, NotApplied, RetryNever, "The causal tree used up its budget of events", "Finish with what you have; do not publish further events under this root."},
	{CodeLoop, 409, NotApplied, RetryNever, "The same principal and type came too often on one causal path", "Do not answer your own kind of event; finish with what you have."},
	{CodeBreadthExhausted, 409, NotApplied, RetryNever, "The delivery has as many children as it may have", "Publish fewer events from one delivery."},
	{CodeExpired, 410, NotApplied, RetryNever, "The event's expiry time has passed", "Do not send it again."},
	{CodeStaleFence, 412, NotApplied, RetryNever, "The lease's epoch was superseded", "Stop: another worker holds the lease."},
	{CodeFenceMissing, 428, NotApplied, RetryAfterFix, "The type demands a lease and none was named", "Acquire the lease and send its fence."},
	{CodeFenceInvalid, 403, NotApplied, RetryNever, "A fence is not a genuine lease token", "Send the lease's token exactly as it came with the lease."},
	{CodeFenceForeign, 403, NotApplied, RetryNever, "A fence belongs to another resource, principal or target", "Send the token of a lease that you hold on this resource for this target."},
	{CodeFenceConflict, 409, NotApplied, RetryNever, "Another grant carries the same epoch", "Stop: the lease was granted anew from a restored store; acquire it again."},
	{CodeLeaseHeld, 409, NotApplied, RetryLater, "Another worker holds the lease", "Wait as long as Retry-After says, or acquire with a wait."},
	{CodeLeaseClosing, 409, NotApplied, RetryNever, "The lease is being revoked", "Stop and release the lease."},
	{CodeLeaseExpired, 412, NotApplied, RetryAfterFix, "The lease ran out before the write", "Renew the lease; if that is refused, stop."},
	{CodeLeaseLost, 410, NotApplied, RetryNever, "The lease was superseded or has ended", "Stop: what you still do for it will be refused."},
	{CodeSealFailed, 503, NotApplied, RetryLater, "A target could not be told of the new lease, which was given back", "See to the target that is named, then acquire with a new request id."},
	{CodeTooLarge, 413, NotApplied, RetryAfterFix, "The request or an event in it is larger than allowed", "Send less at once; keep large content elsewhere and send a reference."},
	{CodeUnsupportedMediaType, 415, NotApplied, RetryAfterFix, "The content type or encoding is not supported", "Use one of the content types in the documentation."},
	{CodeContractUnknown, 422, NotApplied, RetryAfterFix, "No contract is registered for the type", "Register a contract for the type, or correct the type."},
	{CodeContractViolation, 422, NotApplied, RetryAfterFix, "The payload breaks its contract", "Mend the payload as each violation says and send it again."},
	{CodeContractInvalid, 422, NotApplied, RetryAfterFix, "The contract cannot be compiled under the policy", "Correct the contract as the reasons say."},
	{CodeContractIncompatible, 409, NotApplied, RetryAfterFix, "The new contract version is incompatible with an earlier one", "Change the contract as the reasons say, or relax the subject's compatibility."},
	{CodeStreamUnknown, 422, NotApplied, RetryAfterFix, "No stream takes events of this type", "Declare a stream for the type, or correct the type."},
	{CodeStreamsForeign, 409, NotApplied, RetryAfterFix, "The broker's streams belong to another store", "Give the node the store that they belong to, or streams of its own (broker.prefix). To take them over: stop the nodes of the other store, then run headgate broker adopt."},
	{CodeNotFound, 404, NotApplied, RetryNever, "There is no such thing", "Check the name."},
	{CodeConflict, 409, NotApplied, RetryAfterFix, "The state changed since it was read, or the name is taken", "Read the present state and decide anew."},
	{CodeIDTaken, 409, NotApplied, RetryAfterFix, "Another principal published an event with this source and id", "Send it under a source of your own; leave source out to get one."},
	{CodeClaimExpired, 409, NotApplied, RetryNever, "The claim's time ran out before it was settled", "Drop the work; the event will be delivered again."},
	{CodeClaimSuperseded, 409, NotApplied, RetryNever, "A newer claim has taken the delivery over", "Drop the work; the newer claim has it."},
	{CodeInProgress, 409, NotApplied, RetryLater, "Another worker is at this event", "Wait as long as Retry-After says; its result is stored."},
	{CodeTooOld, 409, NotApplied, RetryAfterFix, "The event is older than what the inbox remembers", "See whether it was handled; if not, replay it with the override."},
	{CodeRateLimited, 429, NotApplied, RetryLater, "The principal publishes faster than it may", "Wait as long as Retry-After says."},
	{CodeOverloaded, 429, NotApplied, RetryLater, "The node is at its limit of work in progress", "Wait as long as Retry-After says and send less at once."},
	{CodeNotDurable, 503, NotApplied, RetryLater, "The event cannot be stored durably now", "Send it again later with the same id."},
	{CodeUnknownOutcome, 503, Unknown, RetryLater, "It is not known whether the event was stored", "Send it again with the same id; it will not be stored twice."},
	{CodeDiskFull, 503, NotApplied, RetryLater, "The disk is nearly full, so new events are refused rather than old ones lost", "Free disk space on the node, then send again."},
	{CodeStreamFull, 503, NotApplied, RetryLater, "The stream holds as many bytes as it may, so new events are refused rather than old ones lost", "Let the subscriptions catch up, shorten retain, or raise the stream's max_bytes."},
	{CodeHeldBack, 424, NotApplied, RetryLater, "An event that has to go before it was not stored", "Send both again in their order, with the same ids."},
	{CodeQuarantineFull, 503, NotApplied, RetryLater, "The quarantine is full, so its lanes wait", "Release or discard quarantined events."},
	{CodeDraining, 503, NotApplied, RetryLater, "The node is shutting down", "Send it to another node, or again when this one is back."},
	{CodeUnavailable, 503, NotApplied, RetryLater, "A service that this node depends on cannot be reached", "Try again later; see headgate doctor."},
	{CodeTimeout, 408, NotApplied, RetryLater, "The request took longer to arrive than it may", "Send the body without pauses."},
	{CodeCanceled, 499, Unknown, RetryLater, "The caller went away before the answer", "Repeat with the same id if the result matters."},
	{CodeInternal, 500, Unknown, RetryLater, "An internal error occurred", "Report it with the request id."},
}
