#!/usr/bin/env python3
"""Reacts to each opened ticket with a triaged one, standard library only.

Run a node (headgate dev), then:

    HEADGATE_TOKEN=$(cat .headgate/token) python3 triage.py [EVENTS]

The emitted event and the settlement commit together: both or neither.
"""

import json
import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("HEADGATE_URL", "http://127.0.0.1:7420")
TOKEN = os.environ["HEADGATE_TOKEN"]


def call(method, path, body):
    request = urllib.request.Request(
        URL + path,
        data=json.dumps(body).encode(),
        method=method,
        headers={"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        problem = json.load(refused)
        raise SystemExit(f"{problem['code']}: {problem.get('detail', '')} ({problem['fix']})")


def main(events):
    call("PUT", "/v1/subscriptions/triage-py", {"types": ["ticket.opened"], "from": "beginning"})
    done = 0
    while events is None or done < events:
        pulled = call("POST", "/v1/subscriptions/triage-py/pull", {"max": 10, "wait": "30s"})
        settle = []
        for delivery in pulled["deliveries"]:
            data = delivery["event"]["data"]
            child = {"type": "ticket.triaged", "data": {"ticket_id": data["ticket_id"], "team": "billing"}}
            settle.append({"claim": delivery["claim"], "outcome": "ack", "emit": [child]})
        if settle:
            answer = call("POST", "/v1/subscriptions/triage-py/settle", {"settle": settle})
            done += answer["settled"]
            print(f"settled {answer['settled']} of {len(settle)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
