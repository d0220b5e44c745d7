"""Broker reads shared between callers."""

import asyncio

import pytest
from litestar.datastructures import State

from taskmq import TaskMQ
from taskmq.server.live.samples import read_shared
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


async def test_an_answer_is_shared_for_its_maximum_age(state: State, clock: FakeClock) -> None:
    question = _Question()

    first = [await read_shared(state, "queues", 5, question) for _ in range(3)]
    clock.advance(6)
    second = await read_shared(state, "queues", 5, question)

    assert (first, second) == ([1, 1, 1], 2)


async def test_a_caller_that_requires_fresh_data_queries_and_other_queries_are_separate(state: State) -> None:
    question, other = _Question(), _Question()

    await read_shared(state, "queues", 5, question)

    assert await read_shared(state, "queues", 0, question) == 2
    assert await read_shared(state, "workers", 5, other) == 1


async def test_fifty_concurrent_callers_share_a_query_that_survives_the_first_caller(state: State) -> None:
    question = _Question()
    question.may_end.clear()
    asking = [asyncio.ensure_future(read_shared(state, "queues", 5, question)) for _ in range(50)]
    await asyncio.sleep(0)

    asking[0].cancel()
    question.may_end.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [2] * 49


async def test_a_failed_query_is_not_cached(state: State) -> None:
    question = _Question()
    question.failure = ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await read_shared(state, "queues", 5, question)
    question.failure = None

    assert await read_shared(state, "queues", 5, question) == 2


async def test_callers_that_wait_for_a_failed_query_share_its_failure(state: State) -> None:
    question = _Question()
    question.failure = ConnectionError("gone")
    question.may_end.clear()
    asking = [asyncio.ensure_future(read_shared(state, "queues", 5, question)) for _ in range(50)]
    await asyncio.sleep(0)

    question.may_end.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert (question.looks, answers) == (1, [question.failure] * 50)
    question.failure = None
    assert await read_shared(state, "queues", 5, question) == 2


def test_answers_with_another_wait_for_workers_are_separate(site: Site) -> None:
    for path in ("/queues", "/queues/work", "/workers"):
        for within in (0.01, 0.02):
            answer = site("GET", f"{path}?max_age=60&within={within}", by="all-viewer")
            assert answer.status_code == 200, answer.text

    assert len(site.served.litestar.state["samples"]) == 6
