"""A database of jobs: its connections by purpose, its names and its number of partitions."""

from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.contracts.jobs import PARTITIONS, partition_of
from taskmq.errors import StoreMismatch
from taskmq_sql.jobs.tables import BASELINE, HEAD, SCHEMA, VERSION_TABLE
from taskmq_sql.postgres.connections import HOT, LISTS, LOOKUPS, WALKS, Connection, Connections
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.transactions import PostgresRunner
from taskmq_sql.postgres.upkeep.days import make_days
from taskmq_sql.urls import address_of, plain_url

__all__ = ["Database", "encoding_refusal", "revision_refusal"]

_READERS: Final = 2
# One over all days takes 15 KB at the server for each of them.
_PLANS_OF_WALKS: Final = 32
_SETTINGS: Final = f"""
select (select version_num from taskmq.{VERSION_TABLE}) as revision,
       (select value from taskmq.setting where name = 'partitions') as partitions,
       (select value from taskmq.setting where name = 'understood_by') as understood_by,
       current_database() as database, current_setting('server_encoding') as encoding"""
# Of SQL_ASCII the server holds the bytes that it gets, and asyncpg sends UTF-8.
_ENCODINGS: Final = ("UTF8", "SQL_ASCII")


class Database:
    """What the parts of a store have in common. Connects on first use.

    Attributes:
        address: the URL without its password.
        submits, changes, dispatches, reports, firings, leases: a connection each, so that none of them waits for
            another.
        steps: for what schedulers do between one dispatch and the next.
        walks, reads: for lists of jobs and of what was done to them, and for other lists.
        lookups: for single jobs, names, settings and the clock, which wait for no list.
        accounts: for changes of who may do what.
        histories: for what is remembered of runs.
        upkeep: for what may take long: to make room, and to drop what is old.
        partitions: as the store was made; known from the first connection on.
    """

    def __init__(self, url: str, *, name: str) -> None:
        self.address = address_of(url)
        self._url = plain_url(url)
        self._name = name
        self.partitions = PARTITIONS
        self.submits = self._connections(1, HOT)
        self.changes = self._connections(1, HOT)
        self.dispatches = self._connections(1, HOT)
        self.reports = self._connections(1, HOT)
        self.firings = self._connections(1, HOT)
        self.leases = self._connections(1, HOT)
        self.steps = self._connections(1, HOT)
        self.walks = self._connections(_READERS, WALKS, plans=_PLANS_OF_WALKS)
        self.reads = self._connections(_READERS, LISTS)
        self.lookups = self._connections(1, LOOKUPS)
        self.accounts = self._connections(1, LISTS)
        self.histories = self._connections(1, LISTS)
        self.upkeep = self._connections(1, HOT)
        self.names = Names(self.lookups, self.partition_of)

    def partition_of(self, queue: str) -> int:
        """The partition of a queue."""
        return partition_of(queue, self.partitions)

    def runner(self, reads: Connections, writes: Connections) -> PostgresRunner:
        """Return what runs calls of `taskmq_sql.steps` over these connections."""
        return PostgresRunner(reads, writes, self.names)

    async def aclose(self) -> None:
        for each in (
            self.submits,
            self.changes,
            self.dispatches,
            self.reports,
            self.leases,
            self.steps,
            self.walks,
            self.reads,
            self.lookups,
            self.accounts,
            self.histories,
            self.firings,
            self.upkeep,
        ):
            await each.aclose()

    def _connections(self, size: int, settings: tuple[str, ...], *, plans: int = 100) -> Connections:
        return Connections(
            self._url,
            address=self.address,
            name=self._name,
            size=size,
            settings=settings,
            plans=plans,
            prepare=self._prepare,
            heal=make_days,
        )

    async def _prepare(self, connection: Connection) -> None:
        try:
            row = await connection.fetchrow(_SETTINGS)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            row = None
        revision = None if row is None else row["revision"]
        understood = "" if row is None else row["understood_by"] or ""
        if row is None or (revision != HEAD and HEAD not in understood.split()):
            raise StoreMismatch(revision_refusal(self.address, revision))
        if refusal := encoding_refusal(row["database"], row["encoding"]):
            raise StoreMismatch(f"{self.address}: {refusal}")
        self.partitions = int(row["partitions"])
        # A new connection may lead to a database that was restored, where names have other numbers.
        self.names.forget()


def encoding_refusal(database: str, encoding: str) -> str:
    """Why a database with this encoding holds no jobs; "" where it does."""
    if encoding in _ENCODINGS:
        return ""
    return (
        f"database {database!r} has the encoding {encoding}, which has no form for most texts: make another one with "
        "\"create database NAME encoding 'UTF8' template template0\", and bring what is in this one over with pg_dump"
    )


def revision_refusal(address: str, revision: str | None) -> str:
    """Why this version does not work with tables of `revision` (None: there are none), and what to do about it."""
    if revision is None:
        return f"{address} has no tables of taskmq yet; this version works with {HEAD}: run `taskmq store upgrade`"
    if revision < BASELINE:
        return (
            f"{address} has tables of revision {revision}, which a development version of taskmq made before the "
            "first release, and which cannot be upgraded: name another database, or delete what taskmq has in this "
            f'one with "drop schema {SCHEMA} cascade"; then run `taskmq store upgrade`'
        )
    if revision < HEAD:
        return (
            f"{address} has tables of revision {revision}, this version works with {HEAD}: run `taskmq store upgrade`"
        )
    return (
        f"{address} has tables of revision {revision}, and this older version works with {HEAD}: "
        "install the taskmq that has run `taskmq store upgrade` there"
    )
