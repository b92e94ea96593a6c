#!/usr/bin/env python3
"""Places one order: the row and its event are one transaction, in plain SQL.

    pip install "psycopg[binary]"
    SHOP_DB=postgres://shop@127.0.0.1:5432/shop python3 orders.py ann 1290

Any language with a PostgreSQL driver can do the same.
"""

import os
import sys

import psycopg
from psycopg.types.json import Jsonb


def place(db, customer, cents, cause=""):
    with db.transaction():
        (order,) = db.execute(
            "INSERT INTO public.orders (customer, cents) VALUES (%s, %s) RETURNING id", (customer, cents)
        ).fetchone()
        if cause:  # the causal token of the delivery that this reacts to
            db.execute("SELECT headgate.set_cause(%s)", (cause,))
        data = {"order_id": order, "customer": customer, "cents": cents}
        (event,) = db.execute(
            "SELECT headgate.emit('order.placed', %s, %s, %s)", (Jsonb(data), str(order), f"order {order}")
        ).fetchone()
    return order, event


if __name__ == "__main__":
    with psycopg.connect(os.environ["SHOP_DB"], autocommit=True) as connection:
        print(*place(connection, sys.argv[1], int(sys.argv[2]), os.environ.get("CAUSE", "")))
