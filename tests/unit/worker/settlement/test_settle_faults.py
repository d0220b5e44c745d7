"""A fault at every await of `HoldsDeliveries.settle`, for every outcome.

The awaits are not listed here: a first run without faults counts them, then each of them is hit once. In any case,
the data of the outcome is durable before the ack, nothing is lost, and the delivery is settled once or left to be
redelivered.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.broker import Delivery
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.model.outcome import Cancelled, Dead, Interrupted, Outcome, Parked, Retried, Snoozed, Succeeded
from taskmq.model.states import JobState
from taskmq.model.values.return_type import ReturnType
from taskmq.testing.broker_suite.case import peek
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.settle import Settler
from tests.unit.worker.staged import Fault, Points, StagedApp, open_staged
from tests.virtual_time import run


@dataclass(frozen=True, slots=True)
class Case:
    """An outcome, and the data that must be durable before its delivery is acknowledged."""

    label: str
    outcome: Callable[[], Outcome]
    stored: JobState | None = None
    published: str | None = None
    settled: str = "acked work"

    def __str__(self) -> str:
        return self.label

    def needs(self, app: StagedApp, task: str) -> list[str]:
        keeps_results = app.sessions.state_url is not None and task == "job"
        return [
            *([f"stored {self.stored}"] if self.stored and keeps_results else []),
            *([f"confirmed {self.published}"] if self.published else []),
        ]


CASES = [
    Case("succeeded", lambda: Succeeded(7), stored=JobState.SUCCEEDED),
    Case("not encodable", lambda: Succeeded(object()), stored=JobState.FAILED, published="work.dlq"),
    Case("retried", lambda: Retried(timedelta(seconds=1), ValueError("no")), published="work"),
    Case("snoozed", lambda: Snoozed(timedelta(seconds=1)), published="work"),
    Case("dead", lambda: Dead("error", ValueError("no")), stored=JobState.FAILED, published="work.dlq"),
    Case("cancelled", lambda: Cancelled("expired"), stored=JobState.CANCELLED),
    Case("interrupted", Interrupted, settled="requeued work"),
    Case("parked", lambda: Parked("garbage"), published="taskmq.parking"),
    Case("put back", lambda: Parked("unknown", delay=timedelta(seconds=5)), published="work"),
]
# With results, in an app without a state, and for a task without results; the last two never encode the value.
PLACES = [
    (case, with_state, task)
    for case in CASES
    for with_state, task in ((True, "job"), (True, "mute"), (False, "job"))
    if case.label != "not encodable" or (with_state and task == "job")
]
EVERY_CASE = pytest.mark.parametrize(("case", "with_state", "task"), PLACES, ids=str)
# The gate hits every case with results by faults, and each case at all places by a cancellation.
_ELSEWHERE = pytest.mark.nightly(
    "tests/unit/worker/settlement/test_settle_faults.py::"
    "test_a_cancellation_at_any_await_leaves_the_delivery_to_be_redelivered"
)
CASES_WITH_RESULTS = pytest.mark.parametrize(
    ("case", "with_state", "task"),
    [pytest.param(*place, marks=() if place[1:] == (True, "job") else _ELSEWHERE) for place in PLACES],
    ids=str,
)


class _Steps:
    """Awaits a coroutine, counts its suspensions, and cancels it at one of them."""

    def __init__(self, call: Coroutine[Any, Any, None], cancel_at: int | None = None) -> None:
        self._call = call
        self._cancel_at = cancel_at
        self.count = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        waiting: BaseException | None = None
        while True:
            try:
                awaited = self._call.send(None) if waiting is None else self._call.throw(waiting)
            except StopIteration:
                return
            if self.count == self._cancel_at:
                task.cancel()
            self.count += 1
            waiting = None
            try:
                yield awaited
            except BaseException as error:
                waiting = error


class _Scenario:
    """An unacked delivery, one settle, and the invariants afterwards.

    Each outage here is shorter than results wait: `test_result_wait` covers longer ones.
    """

    RESULT_WAIT = 86_400.0

    def __init__(self, app: StagedApp, case: Case, task: str) -> None:
        self._app = app
        self._case = case
        self._task = task
        self.steps = 0

    async def settle(
        self, *, cancel_at: int | None = None, cancel_after: float | None = None, stop_after: float | None = None
    ) -> None:
        """Settle, with a cancellation at a step or a time, or with a stopping worker; then check."""
        app = self._app
        await app.put(b'{"task": "%s", "id": "job-1", "extra": [1]}' % self._task.encode())
        settler = Settler(app, worker="w1", result_wait=self.RESULT_WAIT)
        async with AsyncExitStack() as hands:
            (delivery,) = await hands.enter_async_context(peek(app.flaky, "work", limit=1))
            steps = _Steps(self._settle_once(settler, delivery), cancel_at)
            settling = asyncio.ensure_future(_run(steps))
            if stop_after is not None:
                asyncio.get_running_loop().call_later(stop_after, settler.stop_trying)
            await asyncio.wait({settling}, timeout=cancel_after if cancel_after is not None else 3600)
            settling.cancel()
            (ended,) = await asyncio.gather(settling, return_exceptions=True)
            self.steps = steps.count
            self._check_order(ended)
        await self._check_no_loss()
        await app.aclose()

    async def _settle_once(self, settler: Settler, delivery: Delivery) -> None:
        outcome = self._case.outcome()
        if isinstance(outcome, Parked):
            await settler.park(delivery, outcome)
            return
        envelope = decode_envelope(delivery.body)
        await settler.settle(Attempt(delivery, envelope, self._app.tasks[self._task], "job-1"), outcome)

    @property
    def story(self) -> list[str]:
        return self._app.story()

    def settles(self) -> list[str]:
        return [word for word in self.story if word.startswith(("acked", "requeued"))]

    def _check_order(self, ended: object) -> None:
        story, settles = self.story, self.settles()
        assert len(settles) <= 1, story
        assert self._app.flaky.void == 0
        if ended is None:
            assert settles, f"settle has returned with an unsettled delivery: {story}"
        else:
            assert isinstance(ended, asyncio.CancelledError), ended
        if settles == ["acked work"]:
            before = story[: story.index("acked work")]
            for need in self._case.needs(self._app, self._task):
                assert need in before, story

    async def _check_no_loss(self) -> None:
        """Check the real broker and state, not the journal; no delivery is held by now."""
        app, case = self._app, self._case
        is_back = any(delivery.message_id == "job-1" for delivery in await app.messages("work"))
        if self.settles() != ["acked work"]:
            assert is_back, self.story
            return
        needs = case.needs(app, self._task)
        if case.published in ("work.dlq", "taskmq.parking"):
            assert [delivery.message_id for delivery in await app.messages(case.published)][:1] == ["job-1"]
        elif case.published == "work":
            assert (await app.stats("work")).delayed, "the copy is missing"
        if f"stored {case.stored}" in needs:
            record = await app.record()
            assert record is not None
            assert record.state is case.stored


async def _job() -> int:
    return 7


async def _run(steps: _Steps) -> None:
    await steps


def _check_play(
    case: Case,
    *,
    with_state: bool,
    task: str,
    points: Points | None = None,
    cancel_at: int | None = None,
    cancel_after: float | None = None,
    stop_after: float | None = None,
) -> tuple[list[str], list[str], int]:
    """Run one scenario; return its calls, its story, and the number of steps of `settle`."""
    seen: list[tuple[list[str], list[str], int]] = []

    async def main() -> None:
        with open_staged(with_state=with_state) as app:
            app.points = points or Points()
            app.task(name="job")(_job)
            app.task(name="mute", result=False)(_job)
            scenario = _Scenario(app, case, task)
            await scenario.settle(cancel_at=cancel_at, cancel_after=cancel_after, stop_after=stop_after)
            seen.append((app.points.names, scenario.story, scenario.steps))

    run(main())
    return seen[0]


@EVERY_CASE
def test_without_a_fault_the_outcome_is_durable_and_then_the_delivery_is_settled(
    case: Case, with_state: bool, task: str
) -> None:
    _, story, _ = _check_play(case, with_state=with_state, task=task)

    with open_staged(with_state=with_state) as app:
        assert story == [*case.needs(app, task), case.settled]


@CASES_WITH_RESULTS
def test_a_call_that_fails_anywhere_is_retried_before_the_ack(case: Case, with_state: bool, task: str) -> None:
    calls, faultless, _ = _check_play(case, with_state=with_state, task=task)

    for fault in (Fault.REFUSED, Fault.UNKNOWN):
        for number in range(len(calls)):
            plan = [Fault.NONE] * number + [fault]
            again, story, _ = _check_play(case, with_state=with_state, task=task, points=Points(plan))

            assert len(again) > len(calls), f"{fault} of {calls[number]} was not followed by another attempt"
            assert story[-1] == faultless[-1]


@CASES_WITH_RESULTS
def test_a_call_that_never_answers_holds_the_delivery_until_it_is_cancelled(
    case: Case, with_state: bool, task: str
) -> None:
    calls, _, _ = _check_play(case, with_state=with_state, task=task)

    for number in range(len(calls)):
        plan = [Fault.NONE] * number + [Fault.HANGS]
        for cancel_after in (0.0, 1.0, 3600.0):
            _check_play(case, with_state=with_state, task=task, points=Points(plan), cancel_after=cancel_after)


@EVERY_CASE
def test_a_cancellation_at_any_await_leaves_the_delivery_to_be_redelivered(
    case: Case, with_state: bool, task: str
) -> None:
    _, _, steps = _check_play(case, with_state=with_state, task=task)

    for number in range(steps):
        _, story, _ = _check_play(case, with_state=with_state, task=task, cancel_at=number)
        assert not [word for word in story if word.startswith("acked")]


@pytest.mark.nightly(
    "tests/unit/worker/settlement/test_settle_faults.py::"
    "test_a_cancellation_at_any_await_leaves_the_delivery_to_be_redelivered"
)
@EVERY_CASE
def test_a_cancellation_at_any_await_of_a_second_try_leaves_the_delivery_too(
    case: Case, with_state: bool, task: str
) -> None:
    calls, _, _ = _check_play(case, with_state=with_state, task=task)

    for first in range(len(calls)):
        plan = [Fault.NONE] * first + [Fault.UNKNOWN]
        _, _, steps = _check_play(case, with_state=with_state, task=task, points=Points(plan))
        for number in range(steps):
            _check_play(case, with_state=with_state, task=task, points=Points(plan), cancel_at=number)


@CASES_WITH_RESULTS
def test_a_lasting_outage_never_ends_in_an_ack(case: Case, with_state: bool, task: str) -> None:
    calls, _, _ = _check_play(case, with_state=with_state, task=task)

    for fault in (Fault.REFUSED, Fault.UNKNOWN, Fault.HANGS):
        for number in range(len(calls)):
            points = Points([Fault.NONE] * number, rest=fault)
            _, story, _ = _check_play(case, with_state=with_state, task=task, points=points)
            assert "acked work" not in story


@CASES_WITH_RESULTS
def test_a_stopping_worker_requeues_the_delivery_when_a_call_keeps_failing(
    case: Case, with_state: bool, task: str
) -> None:
    calls, faultless, _ = _check_play(case, with_state=with_state, task=task)

    for number in range(len(calls)):
        for stop_after in (0.0, 0.3, 60.0):
            points = Points([Fault.NONE] * number, rest=Fault.REFUSED)
            _, story, _ = _check_play(case, with_state=with_state, task=task, points=points, stop_after=stop_after)

            assert story[-1] == "requeued work", (faultless, story)


@pytest.mark.parametrize("case", [case for case in CASES if case.stored], ids=str)
def test_a_state_that_recovers_after_an_hour_gets_the_record(case: Case) -> None:
    points = Points([Fault.REFUSED] * 700)

    calls, story, _ = _check_play(case, with_state=True, task="job", points=points, cancel_after=36_000)

    assert calls[:700] == ["put"] * 700
    assert story[-1] == "acked work"


FAULTS = st.lists(st.sampled_from(Fault), max_size=12)
TIMES = st.none() | st.floats(0, 30)


@given(place=st.sampled_from(PLACES), plan=FAULTS, cancel_after=TIMES, stop_after=TIMES)
def test_no_sequence_of_faults_loses_a_delivery_or_settles_it_too_early(
    place: tuple[Case, bool, str], plan: list[Fault], cancel_after: float | None, stop_after: float | None
) -> None:
    case, with_state, task = place

    _check_play(
        case, with_state=with_state, task=task, points=Points(plan), cancel_after=cancel_after, stop_after=stop_after
    )


async def test_an_unexpected_error_leaves_the_delivery_unsettled() -> None:
    with open_staged() as app:
        task = app.task(name="job")(_job)
        await app.put(b"{")
        settler = Settler(app, worker="w1")
        async with peek(app.flaky, "work", limit=1) as (delivery,):
            attempt = Attempt(delivery, decode_envelope(b'{"task": "job"}'), task, "job-1")

            with pytest.raises(MalformedMessage):
                await settler.settle(attempt, Snoozed(timedelta(seconds=1)))

        assert app.story() == []
        assert len(await app.messages("work")) == 1
        await app.aclose()


async def test_a_stored_value_reads_back_as_it_was_returned() -> None:
    with open_staged() as app:
        app.task(name="job")(_job)
        await _Scenario(app, CASES[0], "job").settle()

        record = await app.record()

    assert record is not None
    assert ReturnType(int).decode(record.value, record.content_type) == 7
