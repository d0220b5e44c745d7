"""The state of a partition as its jobs are dispatched, start and leave."""

from collections.abc import Callable
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, Lane
from taskmq.model.envelope import Envelope, encode_envelope
from taskmq.model.jobs.pools import TenantPool
from taskmq.model.jobs.quotas import HeldBack
from taskmq.model.retry import RunOptions
from taskmq.scheduler.partition import AppRules, PartitionState, Reservation

_APP = TaskMQ("memory://", queues=[WorkQueue("placed", placed=True)])


@_APP.task(queue="limited", concurrency=1)
def limited() -> None:
    """A task that runs alone."""


@_APP.task(ack="early")
def once() -> None:
    """A task that runs at most once."""


@_APP.task(preemptible=True)
def gives_way() -> None:
    """A preemptible task."""


def _state() -> PartitionState:
    return PartitionState(AppRules(_APP))


def _job(
    number: int,
    token: int = 1,
    *,
    task: str = "report",
    queue: str = "work",
    node: str = "",
    run: RunOptions | None = None,
) -> DispatchedJob:
    body = encode_envelope(Envelope(id=f"job-{number}", task=task, run=run))
    return DispatchedJob(
        id=f"job-{number}",
        key=None,
        tenant="",
        task=task,
        queue=queue,
        priority=4,
        attempt=1,
        token=token,
        expires=None,
        body=body,
        node=node,
    )


def _batch(number: int, *jobs: DispatchedJob) -> DispatchBatch:
    return DispatchBatch(id=number, confirmed=False, jobs=list(jobs))


def test_a_leaving_job_makes_room_and_wakes_the_dispatcher_while_others_wait() -> None:
    state = _state()
    state.add([_batch(1, *(_job(number) for number in range(8)))], now=0.0)
    before = state.room("work", 8, now=0.0)
    state.arrive([Lane("work", 4, "")])
    state.admit_arrived()
    state.has_work.clear()

    assert state.leave("job-3", 1, seconds=0.5) is not None
    state.count_ended("work", 1, now=1.0)

    assert state.room("work", 8, now=1.0) > before
    assert state.has_work.is_set()


def test_a_job_under_another_token_is_not_in_flight_and_nothing_changes() -> None:
    state = _state()
    state.add([_batch(1, _job(1, token=7))], now=0.0)

    assert state.leave("job-1", 6) is None
    assert (len(state.ledger), state.ledger.waits("job-1", 7)) == (1, True)


def test_a_second_dispatch_of_a_job_replaces_the_first_and_ends_its_batch() -> None:
    state = _state()
    state.add([_batch(1, _job(1, token=1))], now=0.0)
    state.begin("job-1", now=0.1)

    state.add([_batch(2, _job(1, token=2))], now=1.0)

    assert state.ledger.empty == {1}
    assert state.ledger.waits("job-1", 2)
    assert len(state.ledger) == 1


def test_a_leaving_placed_job_is_news_for_jobs_that_fitted_nowhere() -> None:
    state = _state()
    job = _job(1, queue="placed", node="gpu-1")
    state.placements.plan({"job-1": Reservation("gpu-1", 1, {"slots": 1.0, "gpu": 1.0})})
    state.add([_batch(1, job)], now=0.0)
    assert state.placements.find("job-1") == ("gpu-1", {"slots": 1.0, "gpu": 1.0})
    state.is_stale = False

    state.leave("job-1", 1, seconds=3.0)

    assert state.has_node_news
    assert state.is_stale
    assert len(state.placements) == 0


_DECISIONS: Final[list[tuple[str, Callable[[PartitionState], object]]]] = [
    ("limited", lambda _: None),
    ("placed", lambda _: None),
    ("work", PartitionState.wake),
    ("work", PartitionState.give_up),
    ("work", PartitionState.begin_outage),
    ("work", lambda state: state.arrive([Lane("other", 4, "")])),
    ("work", lambda state: state.shares.add(Lane("other", 4, ""))),
    ("work", lambda state: state.add([_batch(1, *map(_job, range(64)))], now=0.0)),
    ("work", lambda state: state.refuse("work", "it is gone", now=0.0)),
    ("work", lambda state: state.shares.configure({}, {"acme": TenantPool(name="acme", max={"slots": 1.0})})),
]


@pytest.mark.parametrize(("queue", "change"), _DECISIONS)
def test_a_new_job_takes_its_turn_wherever_something_has_to_be_decided(
    queue: str, change: Callable[[PartitionState], object]
) -> None:
    state = _state()
    state.is_stale = False
    assert state.is_free_for("work", None, now=0.0)

    change(state)

    assert not state.is_free_for(queue, None, now=0.0)


def test_lanes_are_read_again_when_a_job_leaves_while_a_quota_holds_jobs_back() -> None:
    state = _state()
    state.add([_batch(1, _job(1), _job(2))], now=0.0)
    state.is_stale = False

    state.leave("job-1", 1)
    assert not state.is_stale

    state.held_back = HeldBack(frozenset({"acme"}))
    state.leave("job-2", 1)
    assert state.is_stale


def test_a_refusing_queue_has_no_room_until_its_pause_is_over_or_it_accepts_a_job() -> None:
    state = _state()
    seconds = state.refuse("work", "no such queue", now=10.0)
    assert seconds is not None

    assert state.room("work", 8, now=10.0 + seconds / 2) == 0
    assert state.refuse("work", "again", now=10.0 + seconds / 2) is None
    assert state.pauses.reasons(now=10.0) == {"work": "no such queue"}
    assert state.room("work", 8, now=10.0 + seconds) > 0

    longer = state.refuse("work", "still", now=10.0 + seconds)
    assert longer is not None
    assert longer > seconds
    state.pauses.accept("work")
    assert state.room("work", 8, now=10.0 + seconds) > 0


def test_a_placed_queue_has_no_room_limit_of_its_own() -> None:
    assert _state().room("placed", 100, now=0.0) == 0


def test_an_outage_ends_only_with_the_last_affected_batch() -> None:
    state = _state()
    state.begin_outage()
    state.begin_outage()

    state.end_outage()
    assert state.is_troubled

    state.end_outage()
    assert not state.is_troubled


def test_an_abandoned_partition_ends_too() -> None:
    state = _state()

    state.give_up()

    assert state.is_ending.is_set()
    assert state.is_given_up.is_set()


def test_rules_tell_which_runs_are_preemptible_and_which_tasks_run_once() -> None:
    rules = AppRules(_APP)
    job = _job(1, task=gives_way.name)

    assert rules.gives_way(job)
    assert not rules.gives_way(_job(1, task="unknown"))
    assert not rules.gives_way(_job(1, task=once.name))
    assert rules.runs_once(_job(1, task=once.name))
    assert not rules.runs_once(_job(1, task="unknown"))
    mine = _job(1, task=gives_way.name, run=RunOptions(once=True))
    assert rules.runs_once(mine)
    assert rules.runs_once(_job(1, task="unknown", run=RunOptions(once=True)))
    assert not rules.gives_way(mine)
    assert not rules.runs_once(_job(1, task=gives_way.name, run=RunOptions(max_attempts=1)))
    assert not rules.runs_once(replace(mine, body=b'{"once": unreadable'))
    assert not rules.is_placed("not a name\n")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "begin", "leave", "hear", "confirm"]),
            st.integers(0, 5),
            st.sampled_from(["report", limited.name, gives_way.name]),
        ),
        max_size=60,
    )
)
def test_no_counts_remain_once_all_jobs_have_left(steps: list[tuple[str, int, str]]) -> None:
    state = _state()
    tokens: dict[int, int] = {}
    for at, (step, number, task) in enumerate(steps):
        token = tokens.get(number, 0)
        if step == "add":
            tokens[number] = token + 1
            state.add([_batch(at, _job(number, token + 1, task=task, queue=task))], now=float(at))
        elif step == "begin":
            state.begin(f"job-{number}", now=float(at))
        elif step == "leave":
            state.leave(f"job-{number}", token, seconds=1.0)
        elif step == "hear":
            state.ledger.hear(f"job-{number}", token, now=float(at), worker="")
        else:
            state.ledger.confirm(at - 1)
    batches = {at for at, (step, _, _) in enumerate(steps) if step == "add"}

    for job_id, token in state.ledger.tokens().items():
        assert state.leave(job_id, token) is not None

    assert state.ledger.is_drained.is_set()
    assert not state.ledger.queues()
    assert (len(state.ledger), state.ledger.giving_way, len(state.shares)) == (0, 0, 0)
    assert state.ledger.empty == batches
    assert not state.ledger.confirmed & batches
    assert not state.gates.are_closed
    assert state.room(limited.name, 4, now=100.0) > 0


def _with_jobs_in_flight(held_back: HeldBack) -> PartitionState:
    state = _state()
    jobs = [_job(number, task=("report", limited.name)[number % 2], queue="work") for number in range(8)]
    state.placements.plan({"job-8": Reservation("gpu-1", 1, {"slots": 1.0, "gpu": 1.0})})
    state.add([_batch(1, *jobs), _batch(2, _job(8, queue="placed", node="gpu-1"))], now=0.0)
    state.held_back = held_back
    state.is_stale = False
    state.has_work.clear()
    return state


def _view(state: PartitionState) -> tuple[object, ...]:
    flags = (state.is_stale, state.has_work.is_set(), state.has_node_news)
    state.arrive([Lane("work", 4, "acme"), Lane("work", 4, "")])
    state.admit_arrived()
    return (
        *flags,
        state.ledger.tokens(),
        state.ledger.queues(),
        state.ledger.empty,
        len(state.placements),
        state.shares.picks(lambda _: 5, limit=5),
    )


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2), st.sampled_from([None, 0.0, 0.5])), max_size=20),
    st.sampled_from([HeldBack(), HeldBack(frozenset({"acme"}))]),
)
def test_jobs_that_leave_together_have_the_effect_of_leaving_one_by_one(
    left: list[tuple[int, int, float | None]], held_back: HeldBack
) -> None:
    together, singly = _with_jobs_in_flight(held_back), _with_jobs_in_flight(held_back)

    flights = together.leave_all([(f"job-{number}", token, seconds) for number, token, seconds in left])

    assert flights == [singly.leave(f"job-{number}", token, seconds=seconds) for number, token, seconds in left]
    assert _view(together) == _view(singly)
