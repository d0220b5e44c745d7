"""The field of a campaign of the job store: submitters, schedulers, workers as processes, and their traces.

    submitters --acknowledged-->  ledger     \\
    store: job, job_key, job_history          >  StoreField.verdict: lost, unended, ended twice, effects
    workers    --runs, effects--> ledger, SQL /

A trigger in the database records whether a scheduler has ever dispatched under an outdated epoch of its partition.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy.ext.asyncio import create_async_engine

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import Pick
from taskmq_sql import acreate_tables, open_job_store
from taskmq_sql.migrations import upgrade
from tests.faults.checker import Fault, Run
from tests.faults.field import Process, environment
from tests.faults.ledger import Ledger, append, note_fault, run_of
from tests.faults.submitter import EFFECT
from tests.servers import PostgreSQL
from tests.servers.waiting import eventually

T = TypeVar("T")

IDLE = "idle"
"""A queue that has more jobs than are dispatched, and no worker until the end."""

JOBS = """
import os, time
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from taskmq import RetryPolicy, TaskMQ
from taskmq_sql import aonce

app = TaskMQ(os.environ["FAULTS_URL"], name="faults", store=os.environ["FAULTS_STORE"])
effects = create_async_engine(
    os.environ["FAULTS_EFFECTS"], pool_pre_ping=True, connect_args={"timeout": 5, "command_timeout": 10}
)
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
AGAIN = RetryPolicy(max_attempts=1000, backoff="constant", base=0.5)


def note(token: str) -> None:
    os.write(LEDGER, f"{token} {time.time_ns() // 1_000_000} {os.getpid()}\\n".encode())


@app.task(queue="work", result=False)
async def work(token: str) -> None:
    note(token)


@app.task(queue="work", result=False, retry=AGAIN)
async def pay(token: str) -> None:
    note(token)
    async with effects.begin() as transaction:
        if await aonce(transaction, token):
            await transaction.execute(text("insert into effect values (:token)"), {"token": token})


@app.task(queue="idle", result=False)
async def idle(token: str) -> None:
    note(token)
"""

_AUDIT = """
create table public.stale (partition int, epoch bigint, present bigint);
create function public.note_stale() returns trigger language plpgsql as $$
declare present bigint;
begin
  select epoch into present from taskmq.lease where key = 'partition:' || new.partition;
  if present is distinct from new.epoch then insert into public.stale values (new.partition, new.epoch, present); end
  if; return new;
end $$;
create trigger note_stale after insert or update of epoch on taskmq.dispatch_batch
for each row execute function public.note_stale();
create table public.effect (token text not null)"""
_STATES = "select k.key, coalesce(h.state, 0) from taskmq.job_key k left join taskmq.job_history h on h.id = k.id"
_HOLDERS = (
    "select substr(key, 11), coalesce(holder, ''), epoch from taskmq.lease "
    "where key like 'partition:%' and holder <> ''"
)
_SUCCEEDED = "5"


@dataclass(frozen=True, kw_only=True)
class StoreVerdict:
    """The violations of a campaign.

    Attributes:
        lost: acknowledged jobs missing from the store.
        unended: jobs without an end.
        unsuccessful: jobs whose end differs from that of their tasks.
        ended_twice: jobs with more than one accepted end.
        silent: successful jobs that no worker has run.
        without_effect, with_two: jobs without exactly one effect.
        untyped: submitters' exceptions other than `StoreUnavailable`.
        stale: dispatches under an outdated epoch that the store accepted.
    """

    acknowledged: int
    kept: int
    runs: int
    run_again: int
    effects: int
    refusals: Counter[str]
    lost: list[str] = field(default_factory=list[str])
    unended: list[str] = field(default_factory=list[str])
    unsuccessful: list[str] = field(default_factory=list[str])
    ended_twice: list[str] = field(default_factory=list[str])
    silent: list[str] = field(default_factory=list[str])
    without_effect: list[str] = field(default_factory=list[str])
    with_two: list[str] = field(default_factory=list[str])
    untyped: list[str] = field(default_factory=list[str])
    stale: list[str] = field(default_factory=list[str])

    @property
    def wrong(self) -> dict[str, list[str]]:
        """Return the violations by kind; empty if there are none."""
        kinds = (
            *("lost", "unended", "unsuccessful", "ended_twice", "silent"),
            *("without_effect", "with_two", "untyped", "stale"),
        )
        found: dict[str, list[str]] = {kind: getattr(self, kind) for kind in kinds}
        return {kind: tokens[:5] for kind, tokens in found.items() if tokens}

    def __str__(self) -> str:
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(self.refusals.items())) or "none"
        return (
            f"{self.acknowledged:,} acknowledged, {self.kept:,} kept, submissions that were refused: {told}; "
            f"{self.runs:,} runs, {self.run_again:,} jobs more than once; {self.effects:,} effects; "
            f"{self.wrong or '0 lost, 0 without an end, one accepted end and one effect each'}"
        )


class StoreField:
    """A campaign.

    Args:
        folder: for its files, empty.
        postgres: the server of the store's database; may be killed.
        broker, store: the URLs for the processes.
    """

    def __init__(self, folder: Path, postgres: PostgreSQL, *, broker: str, store: str) -> None:
        self.folder = folder
        self.faults: list[Fault] = []
        self.processes: dict[str, Process] = {}
        self._postgres = postgres
        self._url = postgres.url
        self._runs: Ledger[Run] = Ledger(folder / "runs", run_of)
        self._acknowledged: Ledger[str] = Ledger(folder / "acknowledged", str)
        self._numbers = itertools.count(1)
        effects = self._url.replace("postgresql://", "postgresql+asyncpg://")
        self._environment = environment(url=broker, store=store, effects=effects)
        (folder / "jobs.py").write_text(JOBS)

    def __enter__(self) -> Self:
        asyncio.run(self._make_tables())
        self._postgres.sql(_AUDIT)
        return self

    async def _make_tables(self) -> None:
        await upgrade(self._url)
        engine = create_async_engine(self._environment["FAULTS_EFFECTS"])
        await acreate_tables(engine)
        await engine.dispose()

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if not process.has_ended:
                for pid in {process.inner_pid, process.pid}:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                process.wait(40)

    def start_submitter(self, role: str, *, lanes: int, rate: float) -> None:
        """Start one more submitter process with its own ids."""
        name = f"{role}-{next(self._numbers)}"
        self._start(role, "-m", "tests.faults.submitter", name, str(lanes), str(rate))

    def start_scheduler(self, role: str) -> None:
        self._start(role, "-m", "taskmq", "scheduler", "jobs:app")

    def start_worker(self, role: str, queue: str) -> None:
        self._start(role, "-m", "taskmq", "worker", "jobs:app", "-Q", queue, "--grace", "10s")

    def _start(self, role: str, *arguments: str) -> None:
        self.processes[role] = Process(role, arguments, self.folder, self._environment)

    def kill(self, role: str) -> None:
        """Send SIGKILL to a process; of a worker to the inner one, which its supervisor replaces."""
        process = self.processes[role]
        inner = process.inner_pid
        os.kill(inner, signal.SIGKILL)
        if inner == process.pid:
            process.wait(40)

    @contextlib.contextmanager
    def freeze(self, role: str) -> Generator[None, None, None]:
        """Suspend a process."""
        pid = self.processes[role].inner_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop_submitters(self) -> None:
        """Let them end after their current calls; there is no time limit for those delayed by a fault."""
        (self.folder / "stop").touch()
        for role, process in self.processes.items():
            if role.startswith("submitter"):
                assert process.wait(120) == 0, process.log[-4000:]

    def stop(self) -> None:
        """Stop everything else; it must end in order, too."""
        others = [process for role, process in self.processes.items() if not role.startswith("submitter")]
        for process in others:
            # A newly started process would die of the signal.
            self.until(lambda process=process: process.has_spoken, f"{process.name} runs", 60)  # type: ignore[misc]
            process.signal(signal.SIGTERM)
        for process in others:
            code = process.wait(60)
            assert code == 0, f"{process.name} ended with {code}\n{process.log[-4000:]}"

    def fault(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Record a fault from its start to the recovery."""
        return note_fault(what, self.faults)

    async def submit_idle(self, count: int) -> None:
        """Submit jobs for the queue without a worker, directly to the store."""
        app = TaskMQ("memory://", name="faults", store=self._url)

        async def idle(token: str) -> None: ...

        task = app.task(name="jobs.idle", queue=IDLE)(idle)
        async with app:
            for number in range(count):
                token = f"i-{number}"
                await app.jobs.asubmit(task, token, job_id=token)
                append(str(self.folder / "acknowledged"), token)

    def epochs(self) -> dict[int, int]:
        """Return the current epoch of each partition."""
        return {int(partition): int(epoch) for partition, _, epoch in self._rows(_HOLDERS)}

    def holder_of_idle(self) -> tuple[str, dict[int, int]]:
        """Return the scheduler that holds the partition of the queue that always has jobs, and the epoch of each.

        One query reads both: another scheduler may get the partition, and a new epoch, right afterwards.
        """
        pids = {process.pid: role for role, process in self.processes.items() if role.startswith("scheduler")}
        partition = self.partition_of_idle()

        def find() -> tuple[str, dict[int, int]] | None:
            rows = {int(each): (holder, int(epoch)) for each, holder, epoch in self._rows(_HOLDERS)}
            holder, _ = rows.get(partition, (":0:", 0))
            role = pids.get(int(holder.split(":")[1]))
            return None if role is None else (role, {each: epoch for each, (_, epoch) in rows.items()})

        found = self.until(find, "a scheduler holds the partition", 60)
        assert found is not None
        return found

    def partition_of_idle(self) -> int:
        return int(self._postgres.sql(f"select partition from taskmq.queue where name = '{IDLE}'"))

    async def write_late(self, epochs: dict[int, int]) -> int:
        """Write like a holder with these epochs that wakes up too late; return the number of refused writes.

        Each write has work to do: ready jobs, and due ones.
        """
        store, refused = open_job_store(self._url, BrokerOptions(name="late")), 0
        try:
            dispatching = store.dispatching
            until = await store.now_ms() + 60_000
            for partition, epoch in epochs.items():
                if lanes := await dispatching.lanes(partition):
                    assert await dispatching.dispatch(partition, epoch, [Pick(lane, 10) for lane in lanes]) is None
                    refused += 1
                if due := await dispatching.due(partition, until=until, limit=10):
                    assert await dispatching.fire(partition, epoch, due) == set()
                    refused += 1
                assert await dispatching.take_over(partition, epoch) == []
        finally:
            await store.aclose()
        return refused

    def count_acknowledged(self) -> int:
        self._acknowledged.refresh()
        return len(self._acknowledged.entries)

    def runs(self) -> int:
        self._runs.refresh()
        return len(self._runs.entries)

    def live(self) -> int:
        """Return the number of jobs that have not ended."""
        return int(self._postgres.sql("select count(*) from taskmq.job"))

    def drain(self, *, patience: float) -> None:
        """Wait until every job has ended, or none has for that many seconds."""
        left, moved = self.live(), time.monotonic()
        while left and time.monotonic() - moved < patience:
            time.sleep(0.2)
            if (now := self.live()) < left:
                left, moved = now, time.monotonic()

    def verdict(self) -> StoreVerdict:
        """Return the verdict; all processes have ended."""
        acknowledged, runs = self._acknowledged, self._runs
        acknowledged.refresh()
        runs.refresh()
        states: dict[str, list[str]] = {}
        for key, state in self._rows(_STATES):
            states.setdefault(key, []).append(state)
        effects = Counter(token for (token,) in self._rows("select token from public.effect"))
        ran = Counter(run.token for run in runs.entries)
        with_effect = {key for key, found in states.items() if key.startswith(EFFECT) and found == [_SUCCEEDED]}
        told = [line.split()[1] for line in _lines(self.folder / "refusals")]
        return StoreVerdict(
            acknowledged=len(set(acknowledged.entries)),
            kept=len(states),
            runs=len(runs.entries),
            run_again=sum(count > 1 for count in ran.values()),
            effects=effects.total(),
            refusals=Counter(told),
            lost=sorted(set(acknowledged.entries) - states.keys()),
            unended=sorted(key for key, found in states.items() if "0" in found),
            unsuccessful=sorted(key for key, found in states.items() if not {"0", _SUCCEEDED}.issuperset(found)),
            ended_twice=sorted(key for key, found in states.items() if len(found) > 1),
            silent=sorted(key for key, found in states.items() if found == [_SUCCEEDED] and not ran[key]),
            without_effect=sorted(with_effect - effects.keys()),
            with_two=sorted(token for token, count in effects.items() if count > 1),
            untyped=sorted({one for one in told if one.startswith("!")}),
            stale=["|".join(row) for row in self._rows("select * from public.stale")],
        )

    def until(self, holds: Callable[[], T], what: str, within: float) -> T:
        """Wait for the first true value of `holds`; a failure shows the logs."""
        try:
            return eventually(holds, what, within=timedelta(seconds=within))
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def logs(self) -> str:
        return "\n".join(f"== {role}\n{process.log[-3000:]}" for role, process in self.processes.items())

    def _rows(self, statement: str) -> list[list[str]]:
        return [line.split("|") for line in self._postgres.sql(statement).splitlines()]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
