// Package contract compiles contracts and checks payloads against them: JSON
// Schema drafts 4 to 2020-12, and Avro 1.12, under a policy that treats
// payloads and schemas as hostile.
//
// # Model
//
// [Compile] turns a schema and a [Policy] into a [Contract]. The schema
// library (santhosh-tekuri/jsonschema) checks the schema against its dialect
// and resolves its references; what it finds is lowered into a program of our
// own, of which two engines are made. The fast engine checks policy (grammar,
// UTF-8, unique names, depth, numbers) and schema in one pass over the raw
// bytes, by tables in which the schemas that apply to one value were merged.
// It can only accept: what it does not accept, or is not made for, the general
// engine decides, which reads the payload under the policy and walks the
// program over the payload's values in place, counting its work. For the
// report it goes on after faults. [headgate.ContractRef] says which engine a
// contract has, and why.
//
// Values that meet many schemas are not asked each of them: scalars are sorted
// into classes, whose fate was found when the contract was compiled, and branches
// of unions that the names and scalars of an object rule out are not tried. What
// is left to ask is what [Contract.Cost] counts; where it may be dear, a warning
// says so ([WarnDear]).
//
// # Closed objects
//
// [Policy.CloseObjects] refuses a member of any object in the payload that no
// schema declares. A member is declared by a schema that applied to its object
// and has it under properties or patternProperties, or under
// additionalProperties or unevaluatedProperties with a schema that says
// something about it; true and {} say nothing. Declarations of everything that
// applied to the object count together, through $ref, allOf, the matching
// branches of anyOf and oneOf, if with then or else, and dependencies, so that
// composition keeps working. What a failed branch or not declares does not
// count. An object in a place that is described by no schema may have no
// members at all. To keep one object open on purpose, say so by
// "patternProperties": {"": {}}.
//
// # Avro
//
// twmb/avro parses Avro schemas and checks their names and defaults; the pass
// over a datum is ours ([Contract.CheckAvro]), because no library checks all of
// what a gate must: varints of at most 5 or 10 bytes without overflow, lengths
// and block counts that the payload has room for, blocks of the size that they
// say, at most 4,096 values without bytes in one array, booleans of 0 or 1,
// UTF-8, one entry for each key of a map, no byte behind the datum, depth and
// work. Logical types are rules: uuid (of a string) 8-4-4-4-12, decimal no more
// digits than its precision, time-millis and time-micros within a day. date,
// timestamps, duration and the uuid of a fixed allow every value of their type;
// a logical type that is unknown or does not fit its type is ignored, as the
// specification says. A varint may be longer than it need be.
//
// A payload in JSON passes an Avro contract ([Contract.Check]) when it can be
// written as a datum of it, and [Contract.AvroFromJSON] and
// [Contract.AvroToJSON] convert. The JSON is Avro's JSON encoding, with
// these differences. A union of null and one other type is bare: "x", not
// {"string":"x"}; any other union keeps the object with the branch's name.
// Reading takes both forms of every union, the one that is written first, and
// of bare values the first branch that the value fits, double before float. A
// field that is left out has its default. A decimal may be a number. Numbers
// that JSON does not have are the strings NaN, Infinity and -Infinity. What is
// written reads back as the same datum.
//
// # Repair, lint and export
//
// [Contract.Report] adds to a verdict how the payload can be mended: a fixed
// list of deterministic steps is tried on the bytes until the contract accepts
// them, first the lossless ones alone. x-headgate-aliases, x-headgate-sensitive
// and, at the root, x-headgate-repair are read from the schema; they change
// nothing about what is valid. [Lint] says what is weak in a schema;
// [Contract.Strict] rewrites it for decoders of constrained output and says
// what that loses. For an Avro contract proposals are made, and marks found, by its
// twin: the schema of its form in JSON, made at the first refusal, whose every
// answer is asked of the Avro schema again. The export is made of a JSON Schema
// of what is written. x-headgate-repair and x-headgate-sensitive are read, and
// aliases are those of fields. Which byte of a datum that does not read belongs
// to which field nobody knows, so that with any mark no report on Avro binary
// shows a sample.
//
// # Invariants
//
//  1. A payload is valid exactly when the schema library, with our formats
//     asserted, says so, and the policy has no objection. The outside suites,
//     the differential tests and the golden verdicts hold this.
//  2. Nothing is ever fetched: no schema makes this package open a file or a
//     connection.
//  3. The cost of a contract is bounded when it is compiled ([MaxVisits]), and
//     the work of a check by the payload's length; beyond it the payload is
//     refused as too_complex. A payload is never in doubt. The look for faults
//     ends at 1,024, and at 2,048 in branches that are compared; what was found
//     is told.
//  4. The same digest and bytes give the same verdict, byte for byte.
//  5. What the fast engine accepts, the general engine accepts; what it refuses
//     is decided by the general engine. Acceptance by the fast engine costs no
//     allocation, but for the format regex and unique arrays of containers.
//  6. A report echoes nothing of a payload but clipped names and samples, and in
//     patches names and values of bounded length, escaped; of what the contract
//     marks as sensitive, nothing.
//  7. What is proposed passes the contract once it is applied.
//
// # Engine version
//
// [EngineVersion] is part of every digest, so that a recorded verdict names the
// engine that gave it. It rises in the very change by which some payload gets
// another verdict, or a report with another violation, another word or another
// proposal, under the same schema and policy; a change that only makes checks
// faster leaves it alone. Digests that are stored stay what they were; the same
// schema has another one when it is registered again, and becomes a new version
// of its subject. testdata/engines.txt holds the digests of the golden verdicts,
// reports and proposals for each version, and a test fails where they differ and
// the version is the same. Lines of a released version never change. Until the
// first release the version is 1, and its lines are written anew with -update
// after they were taken out.
//
// # Failure
//
// A contract that cannot be compiled is an [*headgate.Error] with code
// contract_invalid and the reasons with their places. A fault of a payload is
// no error: it is a [headgate.Verdict].
//
// # Concurrency
//
// A Contract is immutable and safe for concurrent use. The functions of this
// package keep no state.
package contract
