"""What callers share of a look at the broker."""

import asyncio

import pytest
from litestar.datastructures import State

from taskmq import TaskMQ
from taskmq.server.live.samples import shared_look
from taskmq.testing import FakeClock
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site

pytestmark = pytest.mark.real_time


class _Question:
    def __init__(self) -> None:
        self.looks = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.looks += 1
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure
        return self.looks


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def state(clock: FakeClock) -> State:
    return State({"app": TaskMQ(new_url(), clock=clock)})


async def test_an_answer_is_shared_for_as_long_as_it_may_be_old(state: State, clock: FakeClock) -> None:
    question = _Question()

    first = [await shared_look(state, "queues", 5, question) for _ in range(3)]
    clock.advance(6)
    second = await shared_look(state, "queues", 5, question)

    assert (first, second) == ([1, 1, 1], 2)


async def test_who_takes_nothing_old_looks_and_other_questions_have_other_answers(state: State) -> None:
    question, other = _Question(), _Question()

    await shared_look(state, "queues", 5, question)

    assert await shared_look(state, "queues", 0, question) == 2
    assert await shared_look(state, "workers", 5, other) == 1


async def test_fifty_who_ask_at_once_look_once_and_the_first_who_goes_takes_nobody_along(state: State) -> None:
    question = _Question()
    question.may_end.clear()
    asking = [asyncio.ensure_future(shared_look(state, "queues", 5, question)) for _ in range(50)]
    await asyncio.sleep(0)

    asking[0].cancel()
    question.may_end.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [2] * 49


async def test_a_look_that_failed_is_no_answer(state: State) -> None:
    question = _Question()
    question.failure = ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await shared_look(state, "queues", 5, question)
    question.failure = None

    assert await shared_look(state, "queues", 5, question) == 2


async def test_who_waits_for_a_look_that_fails_shares_its_failure(state: State) -> None:
    question = _Question()
    question.failure = ConnectionError("gone")
    question.may_end.clear()
    asking = [asyncio.ensure_future(shared_look(state, "queues", 5, question)) for _ in range(50)]
    await asyncio.sleep(0)

    question.may_end.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert (question.looks, answers) == (1, [question.failure] * 50)
    question.failure = None
    assert await shared_look(state, "queues", 5, question) == 2


def test_answers_that_workers_had_another_time_for_are_other_answers(site: Site) -> None:
    for path in ("/queues", "/queues/work", "/workers"):
        for within in (0.01, 0.02):
            answer = site("GET", f"{path}?max_age=60&within={within}", by="all-viewer")
            assert answer.status_code == 200, answer.text

    assert len(site.served.litestar.state["samples"]) == 6
