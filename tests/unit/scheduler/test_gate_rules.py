"""The rules of gates, over random histories of jobs that arrive, end, are returned and are cancelled."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Concurrency, RateLimit, TaskMQ
from taskmq.contracts.jobs import DispatchedJob, Lane, ReadyJob
from taskmq.model.envelope import Envelope, encode_envelope
from taskmq.scheduler.gates import ClaimWaits, Gates, TaskClaims, TaskDemands

_LANES: Final = (Lane("work", 4, ""), Lane("work", 9, "acme"), Lane("other", 4, ""))
_KEYS: Final = ("a", "b")
_PLACES: Final = {"one": 1, "some": 3}
_RATE: Final = 20
_A_DAY: Final = 86_400.0
_NEVER: Final = 1e9


def _demands() -> TaskDemands:
    app = TaskMQ("memory://gates")

    @app.task(name="one", queue="work", concurrency=Concurrency(1, key="key", name="one"))
    def one(key: str) -> None: ...

    @app.task(
        name="both", queue="work", concurrency=[Concurrency(1, key="key", name="one"), Concurrency(3, name="some")]
    )
    def both(key: str) -> None: ...

    @app.task(name="paced", queue="work", rate_limit=RateLimit("20/s", burst=2))
    def paced(key: str) -> None: ...

    @app.task(name="free", queue="work")
    def free(key: str) -> None: ...

    return TaskDemands(app.tasks.by_name.values())


_DEMANDS: Final = _demands()
_NO_CLAIMS: Final = ClaimWaits(TaskClaims({}).of)


@dataclass
class _History:
    """A partition without a store: lanes, jobs behind gates, and jobs in flight."""

    dice: random.Random
    gates: Gates = field(default_factory=lambda: Gates(_DEMANDS))
    now: float = 100.0
    count: int = 0
    ready: list[ReadyJob] = field(default_factory=list[ReadyJob])
    behind: dict[str, list[ReadyJob]] = field(default_factory=dict[str, list[ReadyJob]])
    flying: dict[str, ReadyJob] = field(default_factory=dict[str, ReadyJob])
    away: list[tuple[float, ReadyJob]] = field(default_factory=list[tuple[float, ReadyJob]])
    began: list[float] = field(default_factory=list[float])
    has_room: bool = True

    def submit(self) -> None:
        for _ in range(self.dice.choice((1, 3, 20))):
            self.count += 1
            task = self.dice.choice(("one", "both", "paced", "free"))
            args = msgspec.Raw(msgspec.json.encode([self.dice.choice(_KEYS)]))
            body = encode_envelope(Envelope(id=str(self.count), task=task, args=args))
            self.ready.append(ReadyJob(id=str(self.count), lane=self.dice.choice(_LANES), task=task, body=body))

    def dispatch(self, most: int = 10) -> None:
        due = self.gates.due(lambda _: self.has_room, now=self.now)
        opened: Counter[str] = Counter()
        for key, count in due.items():
            self.ready += self.behind.get(key, [])[:count]
            opened[key] = len(self.behind.get(key, [])[:count])
            self.behind[key] = self.behind.get(key, [])[count:]
        self.gates.record_released(due, opened)
        counts = dict.fromkeys(_LANES, most)
        free, behind = self.gates.sort(self.ready, counts, claims=_NO_CLAIMS.turn(now=self.now), now=self.now)
        for job in self.ready:
            if job.id in behind:
                self.behind.setdefault(behind[job.id], []).append(job)
        rest = [job for job in self.ready if job.id not in behind]
        taken: list[ReadyJob] = []
        for lane in _LANES:
            taken += [job for job in rest if job.lane == lane][: free[lane]]
        gone = {job.id for job in taken}
        self.ready = [job for job in rest if job.id not in gone]
        # Sometimes an operator was faster.
        taken = [job for job in taken if self.dice.random() < 0.9]
        self.gates.add([_dispatch_job(job) for job in taken], now=self.now)
        self.flying |= {job.id: job for job in taken}
        self.began += [self.now for job in taken if job.task == "paced"]

    def end(self) -> None:
        for job_id in self.dice.sample(sorted(self.flying), k=min(len(self.flying), 3)):
            self.gates.remove(job_id)
            del self.flying[job_id]

    def turn_back(self) -> None:
        for job_id in self.dice.sample(sorted(self.flying), k=min(len(self.flying), 1)):
            seconds = self.dice.choice((0.1, 5.0, 100.0))
            self.gates.turn_back(job_id, seconds, now=self.now)
            self.gates.remove(job_id)
            self.away.append((self.now + seconds, self.flying.pop(job_id)))

    def cancel(self) -> None:
        for jobs in (self.ready, *self.behind.values()):
            if jobs and self.dice.random() < 0.3:
                jobs.pop(self.dice.randrange(len(jobs)))

    def wait(self) -> None:
        self.now += self.dice.choice((0.001, 0.02, 0.3, 2.0))
        self.has_room = self.dice.random() < 0.8
        self.ready += [job for until, job in self.away if until <= self.now]
        self.away = [(until, job) for until, job in self.away if until > self.now]

    def check(self) -> None:
        """Assert that no more are in flight than may run, and no more have started than the rate allows."""
        in_use: Counter[str] = Counter()
        for job in self.flying.values():
            in_use.update(demand.key for demand in _DEMANDS.of(job.task, job.body))
        for key, count in in_use.items():
            assert key == "rate:paced" or count <= _PLACES[key.split(":")[1]], in_use
        for first in range(len(self.began)):
            span = self.began[-1] - self.began[first]
            assert len(self.began) - first <= (span + 0.36) * _RATE + 2, self.began[first:]

    def drain(self) -> None:
        """Let time pass; end everything in flight at once; dispatch when the gates allow it."""
        self.has_room = True
        until = self.now + _A_DAY
        while self.ready or self.flying or self.away or any(self.behind.values()):
            self.dispatch(most=1000)
            self.check()
            woken = [self.gates.remove(job_id) for job_id in self.flying]
            self.flying.clear()
            if not any(woken) and not self.ready and (self.away or any(self.behind.values())):
                self.now = max(self.now, min(self.gates.next(), *(at for at, _ in self.away), _NEVER)) + 0.001
            self.ready += [job for at, job in self.away if at <= self.now]
            self.away = [(at, job) for at, job in self.away if at > self.now]
            assert self.now < until, (self.behind, self.away)


def _dispatch_job(job: ReadyJob) -> DispatchedJob:
    return DispatchedJob(
        id=job.id,
        key=None,
        tenant=job.lane.tenant,
        task=job.task,
        queue=job.lane.queue,
        priority=job.lane.priority,
        attempt=1,
        token=1,
        expires=None,
        body=job.body,
    )


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_no_limit_is_exceeded_and_every_job_is_dispatched(seed: int, steps: int) -> None:
    history = _History(random.Random(seed))
    does = (history.submit, history.dispatch, history.dispatch, history.end, history.turn_back, history.cancel,
            history.wait)  # fmt: skip

    for _ in range(steps):
        history.dice.choice(does)()
        history.check()

    history.drain()
    assert not history.gates.are_closed or history.gates.next() < history.now + 2


def test_a_gate_of_two_queues_opens_if_one_of_them_has_room() -> None:
    gates = Gates(_DEMANDS)
    call = Envelope(id="j", task="one", args=msgspec.Raw(b'["a"]'))
    jobs = [
        ReadyJob(id=str(number), lane=lane, task="one", body=encode_envelope(call))
        for number, lane in enumerate((_LANES[0], _LANES[0], _LANES[2]))
    ]
    gates.sort(jobs, dict.fromkeys(_LANES, 1), claims=_NO_CLAIMS.turn(now=0.0), now=0.0)
    gates.add([_dispatch_job(jobs[0])], now=0.0)
    assert gates.due(lambda _: True, now=0.5) == {}

    gates.remove(jobs[0].id)

    assert gates.due(lambda queue: queue == "work", now=0.5) == {"places:one:a": 1}


@pytest.mark.nightly("tests/unit/scheduler/test_gate_rules.py::test_no_limit_is_exceeded_and_every_job_is_dispatched")
def test_the_memory_of_rates_does_not_grow_with_their_keys() -> None:
    app = TaskMQ("memory://paces")

    @app.task(name="keyed", queue="work", rate_limit=RateLimit("100/s", key="key"))
    def keyed(key: int) -> None: ...

    gates = Gates(TaskDemands(app.tasks.by_name.values()))

    for number in range(30_000):
        body = encode_envelope(Envelope(id="j", task="keyed", args=msgspec.Raw(b"[%d]" % number)))
        job = ReadyJob(id=str(number), lane=_LANES[0], task="keyed", body=body)
        gates.add([_dispatch_job(job)], now=float(number))
        gates.remove(job.id)

    assert len(vars(gates)["_paces"]) <= 10_001
