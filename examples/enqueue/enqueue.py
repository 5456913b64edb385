#!/usr/bin/env python3
"""Stores an order and has its confirmation sent, in one transaction.

Needs psycopg2 (apt-get install python3-psycopg2):

    DATABASE_URL=postgres://app@localhost/app python3 enqueue.py order-1
"""

import os
import sys

import psycopg2
from psycopg2.extras import Json


def place(connection, order):
    """Returns the id of the notification that follows the order."""
    with connection, connection.cursor() as cursor:  # commits, or rolls back on an exception
        cursor.execute("insert into orders (id) values (%s)", (order,))
        cursor.execute(
            "select dispatcher.enqueue(%s)",
            (
                Json(
                    {
                        "project": "shop",
                        "idempotency_key": f"confirmation-{order}",
                        "reference": order,
                        "to": {"email": {"address": "ana@example.com", "name": "Ana"}},
                        "content": {"title": "Your order", "body": f"We have your order {order}."},
                    }
                ),
            ),
        )
        return cursor.fetchone()[0]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: enqueue.py ORDER")
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    try:
        print(place(connection, sys.argv[1]))
    except psycopg2.errors.InvalidParameterValue as refused:
        # The pointer says where in the notification, the constraint what kind of fault.
        sys.exit(f"refused at {refused.diag.message_detail}: {refused.diag.constraint_name}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()
