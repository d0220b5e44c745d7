"""The calls of a `RunStore`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from taskmq.contracts.jobs import (
    EVERY_RUN,
    MOST_RUNS,
    Advanced,
    FindHold,
    MakeJob,
    NewInboxRow,
    NewRun,
    RunFilter,
    RunPage,
    RunPlace,
    StartedRun,
    StoredVersion,
    find_no_hold,
)
from taskmq.errors import StoreUnavailable
from taskmq.model.history.run_figures import RunFigures
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.runs.graphs import load_graph
from taskmq.model.runs.records import RunRecord, RunState, StepKey, StepRecord
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.runs import inbox, workflows
from taskmq_sql.runs.deletion import forget_some_ended, forget_some_of_tenant
from taskmq_sql.runs.figures import read_figures
from taskmq_sql.runs.known_runs import KnownRuns
from taskmq_sql.runs.lists import list_ended, list_runs
from taskmq_sql.runs.places import find_place
from taskmq_sql.runs.quotas import MissingUsage, add_usage
from taskmq_sql.runs.starts import check_content, read_run, start
from taskmq_sql.runs.transitions import Graphs, advance, advance_alone
from taskmq_sql.runs.values import children, read_values, steps, steps_of
from taskmq_sql.steps import JobId, Runner, Steps, Work, first

T = TypeVar("T")

_RUN: Final = "select record, value from taskmq.run where id = $1 and state <> 0"


class JoinTransaction(Protocol):
    """Runs a call in a caller's own transaction."""

    async def __call__(self, connection: Any, work: Work[T], /) -> T: ...


class SqlRuns:
    """A `RunStore` in the database's tables.

    Args:
        turns: runs transitions.
        lists: reads lists and writes rare changes.
        lookups: reads without waiting for lists, and writes starts and events.
        join: runs a start in a caller's transaction.
        quotas: returns the quotas, at most a second old.
        is_on_loop: whether transitions run on the event loop, where a scheduler can be asked for a hold.
        known: keeps the runs that were advanced last; None: each advance reads its runs.
    """

    def __init__(
        self,
        *,
        turns: Runner,
        lists: Runner,
        lookups: Runner,
        join: JoinTransaction,
        quotas: Callable[[], Awaitable[Quotas]],
        is_on_loop: bool,
        known: KnownRuns | None = None,
    ) -> None:
        self._turns = turns
        self._lists = lists
        self._lookups = lookups
        self._join = join
        self._quotas = quotas
        self._is_on_loop = is_on_loop
        self._known = known
        self._graphs: Graphs = {}

    async def put_workflow(self, tenant: str, name: str, content: bytes) -> StoredVersion:
        version = check_content(content)
        return await self._lists.write(partial(workflows.put_workflow, tenant, name, version, content))

    async def activate(self, tenant: str, name: str, version: str) -> StoredVersion | None:
        return await self._lists.write(partial(workflows.activate, tenant, name, version))

    async def workflow(self, tenant: str, name: str, version: str = "") -> tuple[StoredVersion, bytes] | None:
        return await self._lookups.read(partial(workflows.read_workflow, tenant, name, version))

    async def workflows(self, tenant: str | None, *, after: str = "", limit: int = 50) -> list[StoredVersion]:
        return await self._lists.read(partial(workflows.list_workflows, tenant, after, limit))

    async def versions(self, tenant: str, name: str) -> list[StoredVersion]:
        return await self._lists.read(partial(workflows.list_versions, tenant, name))

    async def start(self, runs: Sequence[NewRun], *, connection: Any = None) -> list[StartedRun]:
        if not runs:
            return []
        work = partial(start, runs)
        return await (self._lookups.write(work) if connection is None else self._join(connection, work))

    async def get(self, run_id: str) -> RunRecord | None:
        found = await self._read_run(run_id)
        return None if found is None else found[0]

    async def place(self, run_id: str) -> RunPlace | None:
        return await self._lookups.read(partial(find_place, run_id)) if is_job_id(run_id) else None

    async def graph_text(self, version: str) -> bytes | None:
        return await self._lookups.read(partial(workflows.content_of, version))

    async def list_runs(self, which: RunFilter = EVERY_RUN, *, after: str | None = None, limit: int = 50) -> RunPage:
        return await self._lists.show(partial(list_runs, which, after, limit))

    async def ended_since(self, since: int, *, after: str = "", limit: int = 500) -> list[RunRecord]:
        return await self._lists.read(partial(list_ended, since, after, limit))

    async def figures(
        self, tenant: str | None, since: int, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[RunFigures]:
        return await self._lists.show(partial(read_figures, tenant, since, after, limit))

    async def steps(self, run_id: str, *, after: str = "", limit: int = 500) -> list[StepRecord]:
        run = await self.get(run_id)
        text = None if run is None else await self.graph_text(run.version)
        if text is None:
            return []
        names = sorted(name for name in load_graph(text).order if name > after)[:limit]
        return await self._lists.read(partial(steps, run_id, names))

    async def steps_of(self, names: Mapping[str, Sequence[str]]) -> dict[str, list[StepRecord]]:
        known = {run: each for run, each in names.items() if is_job_id(run)}
        return await self._lists.read(partial(steps_of, known))

    async def children(self, run_id: str, step: str, *, after: int = -1, limit: int = 500) -> list[StepRecord]:
        if not is_job_id(run_id):
            return []
        return await self._lists.read(partial(children, run_id, step, after, limit))

    async def values(self, run_id: str, keys: Sequence[StepKey]) -> dict[StepKey, bytes]:
        run = await self.get(run_id)
        text = None if run is None else await self.graph_text(run.version)
        if text is None:
            return {}
        graph = load_graph(text)
        known = [key for key in keys if key.name in graph.rules]
        return await self._lists.read(partial(read_values, run_id, graph, known))

    async def run_value(self, run_id: str) -> bytes | None:
        found = await self._read_run(run_id)
        if found is None or found[0].state is not RunState.SUCCEEDED:
            return None
        return found[1]

    async def send(self, run_id: str, row: NewInboxRow) -> bool:
        return is_job_id(run_id) and await self._lookups.write(partial(inbox.send, run_id, row))

    async def answer(self, run_id: str, sender_id: str) -> str | None:
        if not is_job_id(run_id):
            return None
        return await self._lookups.read(partial(inbox.answer, run_id, sender_id))

    async def pending(self, *, limit: int, after: str = "") -> list[str]:
        return await self._turns.read(partial(inbox.pending, limit, after))

    async def advance(
        self, run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        wanted = sorted({each for each in run_ids if is_job_id(each)})[:MOST_RUNS]
        if not wanted:
            return {}
        quotas = await self._quotas()
        if len(wanted) == 1 and not quotas.quotas:
            find_hold = find_hold if self._is_on_loop else find_no_hold
            alone = await self._turns.change(
                partial(advance_alone, wanted[0], make_job, find_hold, self._graphs, self._known), is_lasting=False
            )
            if alone is not None:
                return alone
        elif self._known is not None:
            # They are read, and values that they wait with are no longer needed.
            for each in wanted:
                self._known.take(each)
        busy: set[str] = set()
        # If a crash of the server undoes it, the rows are in the inbox again. No worker can have a job of it, as its
        # dispatch is a later transaction, which waits for the disk.
        while True:
            try:
                work = partial(advance, wanted, make_job, self._graphs, quotas, busy)
                return await self._turns.write(work, is_lasting=False)
            except MissingUsage as missing:
                try:
                    await self._lists.write(partial(add_usage, missing.names))
                except StoreUnavailable:
                    # An open submission has added some of it, and so has locked it.
                    busy |= {*missing.names}

    async def fire_timers(self, *, limit: int = 500) -> int | None:
        return await self._turns.write(partial(inbox.fire_timers, limit), is_lasting=False)

    async def forget_ended(self, *, before: int) -> None:
        """Delete the runs that ended at an instant (ms) or before, in portions."""
        await self._repeat(partial(forget_some_ended, before))

    async def forget_tenant(self, tenant: str) -> None:
        """Delete the workflows of a tenant, and its ended runs in portions."""
        await self._repeat(partial(forget_some_of_tenant, tenant))
        await self._lists.write(partial(workflows.forget_workflows, tenant))

    async def _repeat(self, work: Callable[[], Steps[bool]]) -> None:
        while await self._lists.write(work):
            pass

    async def _read_run(self, run_id: str) -> tuple[RunRecord, bytes | None] | None:
        if not is_job_id(run_id):
            return None
        row = await self._lookups.read(partial(first, _RUN, JobId(run_id)))
        return None if row is None else (read_run(row[0]), None if row[1] is None else bytes(row[1]))
