"""A worker's memory of jobs that it must return on arrival."""

from typing import Any

from taskmq.model.commands import Preemption
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.topology import WorkQueue
from taskmq.testing import FakeClock
from taskmq.worker import WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.resources import ResourcePool
from taskmq.worker.intake.slots import Slots
from taskmq.worker.preemptions import Preemptions
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import WorkItem


def _preemptions(clock: FakeClock) -> Preemptions:
    stats = WorkerStats()
    slots = Slots(
        [WorkQueue("work")],
        WorkerConfig(),
        ResourcePool({}),
        clock,
        stats,
        threads=None,
        next_item=lambda: None,
        thread_ended=_never,
    )
    return Preemptions({}, slots, stats, settle=_never_settled, cancel=_never)


def _never(*_: object) -> None:
    raise AssertionError("nothing runs")


def _never_settled(_: Attempt) -> WorkItem:
    raise AssertionError("nothing waits")


def _job(name: str, **facts: Any) -> Envelope:
    return Envelope(task="crunch", store=Invitation(id=name, token=1, reports="reports"), **facts)


def test_a_recalled_job_is_requeued_once() -> None:
    preemptions = _preemptions(FakeClock())

    preemptions.ask([Preemption(job="a", token=1)])

    assert not preemptions.is_recalled(_job("b"))
    assert not preemptions.is_recalled(Envelope(task="crunch"))
    assert preemptions.is_recalled(_job("a"))
    assert not preemptions.is_recalled(_job("a"))


def test_another_dispatch_of_a_recalled_job_is_run() -> None:
    preemptions = _preemptions(FakeClock())

    preemptions.ask([Preemption(job="a", token=2)])

    assert not preemptions.is_recalled(_job("a"))


def test_jobs_that_did_not_arrive_within_a_minute_are_forgotten_and_delay_no_others() -> None:
    clock = FakeClock()
    preemptions = _preemptions(clock)
    preemptions.ask([Preemption(job=job, token=1) for job in ("a", "b")])
    clock.advance(40)
    preemptions.ask([Preemption(job="a", token=1)])
    clock.advance(40)

    assert not preemptions.is_recalled(_job("c"))

    assert list(preemptions.recalled) == [("a", 1)]
    clock.advance(40)
    assert not preemptions.is_recalled(_job("a"))
    assert not preemptions.recalled
