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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq_sql.effects import acreate_tables, aforget, aonce, create_tables, forget, once
    from taskmq_sql.location import open_job_store
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

# Elsewhere than in `effects`, whose ORM takes a quarter of a second to import: a job store needs none of it.
_HOMES = {"open_job_store": "location", "metadata": "tables", "once_keys": "tables"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'taskmq_sql' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"taskmq_sql.{_HOMES.get(name, 'effects')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
