#!/bin/sh
# Reacts to each opened ticket with a triaged one. Run a node (headgate dev),
# then:  headgate listen ticket.opened --as triage --exec ./triage.sh
# The event comes on standard input; exit 0 acks it, anything else retries.
set -eu
ticket=$(sed -n 's/.*"ticket_id": *"\([A-Za-z0-9-]*\)".*/\1/p')
[ -n "$ticket" ] || { echo "no ticket id" >&2; exit 1; }
exec headgate emit ticket.triaged "{\"ticket_id\":\"$ticket\",\"team\":\"billing\"}" --cause "$HEADGATE_CAUSE"
