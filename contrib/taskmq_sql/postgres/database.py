"""A database of jobs: connections by purpose, names, and the number of partitions."""

from collections.abc import Awaitable, Callable
from functools import partial
from types import MappingProxyType
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.contracts.jobs import PARTITIONS, partition_of
from taskmq.errors import StoreMismatch
from taskmq_sql.jobs.tables import BASELINE, HEAD, SCHEMA, VERSION_TABLE
from taskmq_sql.postgres.connections import Connection, Connections
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.replica import Replica, Shown
from taskmq_sql.postgres.statements.settings import HOT, LISTS, LOOKUPS, WALKS
from taskmq_sql.postgres.transactions import Answers, PostgresRunner
from taskmq_sql.postgres.upkeep.days import make_days
from taskmq_sql.runs.known_runs import KnownRuns
from taskmq_sql.urls import address_of, plain_url

_READERS: Final = 2
_ADVANCERS: Final = 2
# A plan over all days takes 15 KB per day at the server.
_PLANS_OF_WALKS: Final = 32
_SETTINGS: Final = f"""
select (select version_num from taskmq.{VERSION_TABLE}) as revision,
       (select value from taskmq.setting where name = 'partitions') as partitions,
       (select value from taskmq.setting where name = 'understood_by') as understood_by,
       current_database() as database, current_setting('server_encoding') as encoding"""
# With SQL_ASCII the server stores bytes as received, and asyncpg sends UTF-8.
_ENCODINGS: Final = ("UTF8", "SQL_ASCII")


class Database:
    """The parts that all modules of the store share. Connects on first use.

    Attributes:
        address: the URL without its password.
        submits, changes, dispatches, reports, firings, leases: one connection each, so none waits for another.
        steps: short statements of schedulers between dispatches.
        walks, reads: lists of jobs and their actions, and other lists.
        shown_walks, shown: those that nothing decides on, which a replica may answer.
        lookups: single jobs, names, settings and the clock, which must not wait for lists.
        accounts: changes of accounts.
        histories: logs, metrics and alerts.
        runs: transitions of runs.
        known_runs: the runs that were advanced last.
        upkeep: slow work: creating partitions and deleting old rows.
        partitions: number of partitions set at creation; known after the first connection.
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
        self.shown_walks = Shown(self.walks)
        self.shown = Shown(self.reads)
        self.replica: Replica | None = None
        self.lookups = self._connections(1, LOOKUPS)
        self.accounts = self._connections(1, LISTS)
        self.histories = self._connections(1, LISTS)
        self.runs = self._connections(_ADVANCERS, HOT)
        self.upkeep = self._connections(1, HOT)
        self.names = Names(self.lookups, self.partition_of)
        self.known_runs = KnownRuns()

    def partition_of(self, queue: str) -> int:
        """Return the partition of a queue."""
        return partition_of(queue, self.partitions)

    def use_replica(self, url: str, *, max_age: float) -> None:
        """Read from a replica what nothing decides on; see `Replicated.use_replica`."""
        there = partial(self._connections, url=url, prepare=partial(self._check, address=address_of(url)))
        self.replica = Replica(
            address=address_of(url),
            max_age=max_age,
            primary=self.lookups,
            walks=there(_READERS, WALKS, plans=_PLANS_OF_WALKS),
            reads=there(_READERS, LISTS),
        )
        self.shown_walks.use(self.replica, self.replica.walks)
        self.shown.use(self.replica, self.replica.reads)

    def runner(
        self, reads: Connections, writes: Connections, answers: Answers = MappingProxyType({})
    ) -> PostgresRunner:
        """Return a runner of `taskmq_sql.steps` calls over these connections."""
        return PostgresRunner(reads, writes, self.names, answers, shown=self.shown)

    async def aclose(self) -> None:
        if self.replica is not None:
            await self.replica.aclose()
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
            self.runs,
            self.upkeep,
        ):
            await each.aclose()

    def _connections(
        self,
        size: int,
        settings: tuple[str, ...],
        *,
        plans: int = 100,
        url: str | None = None,
        prepare: Callable[[Connection], Awaitable[object]] | None = None,
    ) -> Connections:
        return Connections(
            self._url if url is None else plain_url(url),
            address=self.address if url is None else address_of(url),
            name=self._name,
            size=size,
            settings=settings,
            plans=plans,
            prepare=prepare or self._prepare,
            heal=make_days,
        )

    async def _prepare(self, connection: Connection) -> None:
        self.partitions = await self._check(connection, address=self.address)
        # A new connection may lead to a restored database, whose names have other numbers.
        self.names.forget()
        self.known_runs.forget()

    async def _check(self, connection: Connection, *, address: str) -> int:
        """Check the tables; return the number of partitions."""
        try:
            row = await connection.fetchrow(_SETTINGS)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            row = None
        revision = None if row is None else row["revision"]
        understood = "" if row is None else row["understood_by"] or ""
        if row is None or (revision != HEAD and HEAD not in understood.split()):
            raise StoreMismatch(revision_refusal(address, revision))
        if refusal := encoding_refusal(row["database"], row["encoding"]):
            raise StoreMismatch(f"{address}: {refusal}")
        return int(row["partitions"])


def encoding_refusal(database: str, encoding: str) -> str:
    """Return why a database with this encoding cannot store jobs; "" if it can."""
    if encoding in _ENCODINGS:
        return ""
    return (
        f"database {database!r} has the encoding {encoding}, which cannot represent most texts: create another one "
        "with \"create database NAME encoding 'UTF8' template template0\" and move this one's content with pg_dump"
    )


def revision_refusal(address: str, revision: str | None) -> str:
    """Explain why this version cannot use tables of `revision` (None: no tables), and how to fix it."""
    if revision is None:
        return f"{address} has no taskmq tables yet; this version works with {HEAD}: run `taskmq store upgrade`"
    if revision < BASELINE:
        return (
            f"{address} has tables of revision {revision}, which a development version of taskmq made before the "
            "first release; they cannot be upgraded: use another database, or delete taskmq's tables in this one "
            f'with "drop schema {SCHEMA} cascade"; then run `taskmq store upgrade`'
        )
    if revision < HEAD:
        return (
            f"{address} has tables of revision {revision}, this version works with {HEAD}: run `taskmq store upgrade`"
        )
    return (
        f"{address} has tables of revision {revision}, but this older version works with {HEAD}: "
        "install the version of taskmq that upgraded the tables"
    )
