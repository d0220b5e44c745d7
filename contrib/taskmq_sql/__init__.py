"""An effect in your own database, once: `pip install 'taskmq[sql]'`, with SQLAlchemy 2.

    from taskmq_sql import once

    @app.task
    def pay(order_id: int) -> None:
        with Session(engine) as session, session.begin():
            if once(session, f"pay:{order_id}"):
                session.add(Payment(order_id=order_id))

The key is a row of `taskmq_once`, written in the transaction that has the effect: both are committed, or none. So the
effect is there once, however often the job runs and wherever workers die, and without any state or token of taskmq.
It holds for what that transaction writes, and for nothing else: not for a mail that is sent inside of it.

Two transactions with one key at a time: on PostgreSQL the second waits for the first, and is the first itself where
that rolls back. On SQLite, which has one writer at a time, the second waits for SQLite's `timeout`.
"""

from taskmq_sql.location import open_job_store
from taskmq_sql.once import acreate_tables, aforget, aonce, create_tables, forget, once
from taskmq_sql.tables import metadata, once_keys

__all__ = [
    "acreate_tables",
    "aforget",
    "aonce",
    "create_tables",
    "forget",
    "metadata",
    "once",
    "once_keys",
    "open_job_store",
]
