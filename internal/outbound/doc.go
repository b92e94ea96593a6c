// Package outbound makes the HTTP calls that Headgate makes to addresses which
// somebody wrote down: targets of a configuration, later those of webhooks. It
// is the one way out.
//
// # Model
//
// A [Client] makes one call at a time, each over a connection of its own. It
// reads the URL strictly, resolves the host once, checks every address that
// came back, and connects to one of those and to no other: the name is not
// looked up again, so that a second answer (DNS rebinding) has no say. What the
// connection really reached is checked once more before a byte is sent.
//
// # Invariants
//
//  1. Without being named in Config.Hosts no host is reached on an address that
//     is not of the public Internet: private, loopback, link-local, shared,
//     documentation, multicast and reserved ranges are refused, also written
//     as IPv4 in IPv6 (mapped, compatible, NAT64, 6to4, Teredo), and so is a
//     host of which a single address is of that kind.
//  2. A host that is named reaches private, loopback and shared ranges. Link-
//     local ranges and the addresses by which clouds hand out credentials it
//     reaches only when the address itself is what is named.
//  3. HTTP without TLS goes to named hosts only.
//  4. No redirect is followed and no proxy is used, whatever the environment
//     says.
//  5. Time, headers and body of an exchange are bounded, and nothing that is
//     compressed is unpacked.
//
// # Failure
//
// forbidden (wrapping [ErrDenied]) when the URL or an address may not be
// called: nothing was sent. unavailable otherwise, with the outcome unknown
// once the request may have left. What the other side answered never becomes
// part of an error; who reads [Response.Body] must not pass it on unread.
//
// # Concurrency
//
// A Client is safe for concurrent use.
package outbound
