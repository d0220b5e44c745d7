"""Workflows with their versions, and runs whose steps are jobs of the store.

    start, send, the end of a step's job -> inbox of the run -> advance -> steps, values, jobs, timers, child runs
    fire_timers                          -> inbox

`taskmq.model.runs` decides what follows from each inbox row. Any scheduler may advance any run: the store locks a run
while it advances, so a run has one writer at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from taskmq.contracts.jobs.dispatch.dispatched_jobs import DispatchBatch
from taskmq.contracts.jobs.dispatch.lanes import Lane, PartitionHold
from taskmq.contracts.jobs.records import NewJob
from taskmq.model.history.run_figures import RunFigures
from taskmq.model.runs.records import RunRecord, RunState, StepJob, StepKey, StepRecord

MOST_RUNS: Final = 50
"""Maximum of runs that one transaction advances."""

MakeJob = Callable[[RunRecord, StepJob], NewJob]
"""Builds the job of a step, with the id that the step names. If it raises a `TaskMQError`, the step fails with it."""

FindHold = Callable[[NewJob], PartitionHold | None]
"""Returns the hold under which a new job of a step may be dispatched at once; None: it waits for its turn."""


def find_no_hold(_: NewJob) -> None:
    """Let every job wait for its turn."""


class StoredVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow.

    Attributes:
        version: the hash of its content.
        at: when it was first stored, ms since the epoch.
        is_current: whether runs without a version get this one.
        is_new: in the answer to `put_workflow`, whether the content was stored just now.
    """

    name: str
    version: str
    at: int
    is_current: bool
    is_new: bool = False


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start.

    Attributes:
        id: a UUID of version 7, so that runs sort by their start.
        workflow: name of the workflow; of a run with its own content, a name for people.
        content: text of `encode_workflow`; None: a stored version.
        version: without content, the version to run; "": the current one.
        params: JSON object; parameters that are missing get their defaults.
        timeout: maximum duration, ms; None: that of the content.
        scheduled_for, parent, parent_step, depth: as in `RunRecord`.
        due: when its schedule has to start it, ms since the epoch; None: started by hand, by a backfill or a run.
    """

    id: str
    tenant: str = ""
    workflow: str = ""
    content: bytes | None = None
    version: str = ""
    params: bytes = b"{}"
    timeout: int | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    scheduled_for: str = ""
    parent: str = ""
    parent_step: str = ""
    depth: int = 0
    due: int | None = None


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a start.

    Attributes:
        is_new: whether this call started it; False: the id exists, or it was refused.
        refusal: why nothing was started; "": it was, now or before.
    """

    id: str
    is_new: bool
    version: str = ""
    refusal: str = ""


class NewInboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event for a run; the store assigns its number. Attributes are those of `InboxRow`.

    Attributes:
        id: the sender's; "": none. A second row of the run with the same id is not stored.
        step: of a redrive, the first step that runs again, "" for all without success; of an `add` or `close`, the
            batch; of a signal, the only step that may consume it, "" for any.
        error: of a cancel or a hold, the reason.
    """

    kind: Literal["signal", "cancel", "redrive", "add", "close", "hold", "release"]
    id: str = ""
    step: str = ""
    generation: int | None = None
    name: str = ""
    value: bytes = b"null"
    error: str = ""
    roles: tuple[str, ...] | None = None
    calls: tuple[msgspec.Raw, ...] = ()


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of runs; unset fields select all.

    Attributes:
        tenant: None: all tenants.
        workflow: name, in which `*` stands for any text.
        is_held: whether runs that are running and not held are left out.
        since, until: bounds of the start, ms since the epoch; `until` is excluded.
        labels: labels that a run must have.
        parent: id of the run that started it.
    """

    tenant: str | None = None
    workflow: str = ""
    states: tuple[RunState, ...] = ()
    is_held: bool = False
    since: int | None = None
    until: int | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    parent: str = ""


EVERY_RUN: Final = RunFilter()


class RunPage(msgspec.Struct, frozen=True):
    """A page of runs, the newest first.

    Attributes:
        after: cursor of the next page; None on the last one.
        is_bounded: whether the search stopped at its limit before the end; the next page continues there.
    """

    runs: list[RunRecord]
    after: str | None
    is_bounded: bool = False


class RunPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a queued run waits for.

    Attributes:
        active: number of active runs of its workflow and tenant.
        most: maximum of them.
        ahead: number of queued runs that begin before it.
    """

    active: int
    most: int
    ahead: int


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one transaction on a run.

    Attributes:
        lanes: lanes with new ready jobs.
        batch: a new job that was dispatched at once, to be published; None: there is none.
        has_more: whether the run has more to do immediately.
        ended: the run, if it ended now.
        asked: ids of jobs whose workers were asked to stop them.
        woken: ids of runs with new inbox rows: its parent, its child runs, and runs that got a place.
        timer: instant of the earliest timer that it added, ms since the epoch; None if it added none.
    """

    lanes: frozenset[Lane] = frozenset()
    batch: DispatchBatch | None = None
    has_more: bool = False
    ended: RunRecord | None = None
    asked: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()
    timer: int | None = None


class RunStore(Protocol):
    """Workflows and runs. Ids that are not UUIDs are unknown.

    Every method raises `StoreUnavailable` if the store cannot be reached, and `StoreMismatch` if its tables are not
    those of the adapter.
    """

    async def put_workflow(self, tenant: str, name: str, content: bytes) -> StoredVersion:
        """Store a version of a workflow, a text of `encode_workflow`; return it.

        Content that is known changes nothing. New content becomes the current version.
        """
        ...

    async def activate(self, tenant: str, name: str, version: str) -> StoredVersion | None:
        """Make a stored version the current one; return it, None if there is none."""
        ...

    async def workflow(self, tenant: str, name: str, version: str = "") -> tuple[StoredVersion, bytes] | None:
        """Return a version and its text, by default the current one; None if there is none."""
        ...

    async def workflows(self, tenant: str | None, *, after: str = "", limit: int = 50) -> list[StoredVersion]:
        """Return the current versions of workflows with names after `after`, in code point order.

        Args:
            tenant: None: all tenants.
        """
        ...

    async def versions(self, tenant: str, name: str) -> list[StoredVersion]:
        """Return all versions of a workflow, the last one first."""
        ...

    async def start(self, runs: Sequence[NewRun], *, connection: Any = None) -> list[StartedRun]:
        """Start runs in one transaction; return the result of each, in order. A known id starts nothing.

        A run of a tenant whose workflow the tenant does not have, in this version, is one of the workflow without a
        tenant. A run is refused if a parameter is missing, unknown or does not fit its schema.

        Args:
            connection: of the caller's own transaction, as `JobStore.submit` takes it.
        """
        ...

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the run; None if there is none (any more)."""
        ...

    async def place(self, run_id: str) -> RunPlace | None:
        """Return the place that a queued run waits for; None if it waits for none.

        Runs of one tenant and workflow begin in the order of their starts, also after a redrive, and those of the
        same millisecond in the order of their ids. A run enters the line in the transaction that starts it. Only
        runs whose content has `max_active_runs` wait and count. If their versions differ in it, the one of the open
        run that started last counts for all of them.
        """
        ...

    async def graph_text(self, version: str) -> bytes | None:
        """Return the content of a version that a workflow or a run has; None if there is none (any more)."""
        ...

    async def list_runs(self, which: RunFilter = EVERY_RUN, *, after: str | None = None, limit: int = 50) -> RunPage:
        """Return up to `limit` runs, the newest first, after the cursor `after`.

        Raises:
            InvalidOption: `after` is no cursor.
        """
        ...

    async def ended_since(self, since: int, *, after: str = "", limit: int = 500) -> list[RunRecord]:
        """Return up to `limit` runs of all tenants that ended at an instant (ms) or later, the earliest first.

        Args:
            after: of the runs that ended at that instant, only those with a larger id. The next page follows from the
                end and the id of the last run.
        """
        ...

    async def figures(
        self, tenant: str | None, since: int, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[RunFigures]:
        """Return figures of the runs of a tenant, None for all, in a window that began at `since` (ms).

        Returns up to `limit` of them, by tenant and workflow, for those after the tenant and workflow `after`. Ended
        runs that are deleted do not count. The time depends on the number of workflows, not on that of their runs.
        """
        ...

    async def steps(self, run_id: str, *, after: str = "", limit: int = 500) -> list[StepRecord]:
        """Return up to `limit` steps with names after `after`, in code point order; a step without a record waits."""
        ...

    async def steps_of(self, names: Mapping[str, Sequence[str]]) -> dict[str, list[StepRecord]]:
        """Return the records of the named steps of several runs, by run; a step without a record waits.

        All of them are read in one statement.
        """
        ...

    async def children(self, run_id: str, step: str, *, after: int = -1, limit: int = 500) -> list[StepRecord]:
        """Return up to `limit` children of a step, in order, after the one with the number `after`."""
        ...

    async def values(self, run_id: str, keys: Sequence[StepKey]) -> dict[StepKey, bytes]:
        """Return the values of those of these steps and children that have succeeded, as `open_value` reads them.

        The value of a step with children is the list of theirs.
        """
        ...

    async def run_value(self, run_id: str) -> bytes | None:
        """Return the value of a run that succeeded, as `open_value` reads it; None for any other."""
        ...

    async def send(self, run_id: str, row: NewInboxRow) -> bool:
        """Add a row to the run's inbox, unless it had one of the same sender's id; return whether the run exists."""
        ...

    async def answer(self, run_id: str, sender_id: str) -> str | None:
        """Return the effect of the row with this sender's id; None if it is unknown or not applied yet."""
        ...

    async def pending(self, *, limit: int, after: str = "") -> list[str]:
        """Return up to `limit` ids of runs with something to do, in order, after the id `after`."""
        ...

    async def advance(
        self, run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        """Apply rows of the inboxes of up to `MOST_RUNS` runs, or continue what earlier ones began.

        It is one transaction, which writes about 500 rows at most. Returns its effect on each run. Runs that do not
        exist, or that another scheduler advances, are unchanged and absent.

        Args:
            find_hold: called, if at all, on the event loop, for a job that the transaction may also dispatch. It does
                so under the hold that this returns, as `DispatchStore.dispatch` does, if the job is due and no job of
                its queue is ready. The dispatch is durable on return.
        """
        ...

    async def fire_timers(self, *, limit: int = 500) -> int | None:
        """Move up to `limit` due timers into the inboxes of their runs.

        Returns the instant of the next timer, ms since the epoch; None if there is none.
        """
        ...
