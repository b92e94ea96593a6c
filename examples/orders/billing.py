#!/usr/bin/env python3
"""Charges each order once, in plain SQL: what billing/main.go does in Go.

    pip install "psycopg[binary]"
    BILLING_DB=postgres://billing@127.0.0.1:5432/shop python3 billing.py

HEADGATE_URL and BILLING_TOKEN as in README.md. With a number it ends after so
many deliveries.
"""

import json
import os
import sys
import urllib.request

import psycopg
from psycopg.types.json import Jsonb

URL = os.environ.get("HEADGATE_URL", "http://127.0.0.1:7420") + "/v1/subscriptions/billing/"


def call(verb, body):
    request = urllib.request.Request(
        URL + verb, json.dumps(body).encode(), {"Authorization": "Bearer " + os.environ["BILLING_TOKEN"], "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def handle(db, delivery):
    """One transaction: the note, the charge, the event. False: a duplicate."""
    event = delivery["event"]
    with db.transaction():
        (new,) = db.execute(
            "SELECT headgate.receive('billing', %s, %s, %s, %s)",
            (event["source"], event["id"], event["recordedtime"], delivery["cause"]),
        ).fetchone()
        if new:
            order = event["data"]
            db.execute("INSERT INTO public.charges (order_id, cents) VALUES (%s, %s)", (order["order_id"], order["cents"]))
            data = {"order_id": order["order_id"], "cents": order["cents"]}
            db.execute("SELECT headgate.emit('order.charged', %s, %s)", (Jsonb(data), str(order["order_id"])))
    return new


def main(left):
    with psycopg.connect(os.environ["BILLING_DB"], autocommit=True) as db:
        while left:
            for delivery in call("pull", {"max": 1, "wait": "30s"})["deliveries"]:
                new = handle(db, delivery)
                print(delivery["event"]["id"], "charged" if new else "was charged before", flush=True)
                call("settle", {"settle": [{"claim": delivery["claim"], "outcome": "ack"}]})
                left -= 1


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else -1)
