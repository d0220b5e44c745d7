"""Runs of jobs that override their task's options of a run, sent and stored."""

import asyncio
from typing import Any

import pytest

from taskmq import Context, RetryPolicy, TaskMQ, WorkQueue, chain
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.testing import Harness

pytestmark = pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "sent"])

_RETRY = RetryPolicy(max_attempts=5, base="1h", cap="1h", jitter=False)


class _Shop:
    def __init__(self) -> None:
        self.app = TaskMQ()
        self.attempts: list[str] = []

        @self.app.task(name="endless", timeout="1h", retry=None)
        async def endless() -> None:
            await asyncio.Event().wait()

        @self.app.task(name="fail", retry=_RETRY)
        async def fail(context: Context) -> None:
            self.attempts.append(f"{context.attempt} of {context.max_attempts}")
            raise ValueError("no")

        self.endless = endless
        self.fail = fail


def _start(call: Any, *, is_stored: bool) -> str:
    return str((call.submit if is_stored else call.send)().id)


def test_the_timeout_of_a_job_ends_its_run_before_that_of_its_task(is_stored: bool) -> None:
    shop = _Shop()
    with Harness(shop.app, store=is_stored) as harness:
        _start(shop.endless.options(timeout="50ms"), is_stored=is_stored)
        harness.drain(raise_errors=False)

        (failed,) = harness.failed
        assert "ran longer than its timeout of 0.05 s" in str(failed.error)


def test_a_job_runs_as_often_and_at_the_pace_that_it_asks_for(is_stored: bool) -> None:
    shop = _Shop()
    pace = shop.fail.options(max_attempts=3, retry={"backoff": "constant", "base": "10s", "jitter": False})
    with Harness(shop.app, store=is_stored) as harness:
        _start(pace, is_stored=is_stored)
        harness.advance("5s", raise_errors=False)
        assert shop.attempts == ["1 of 3"]
        harness.advance("10s", raise_errors=False)
        assert shop.attempts == ["1 of 3", "2 of 3"]
        harness.advance("1h", raise_errors=False)

    assert shop.attempts == ["1 of 3", "2 of 3", "3 of 3"]


def test_a_job_that_runs_at_most_once_is_not_retried(is_stored: bool) -> None:
    shop = _Shop()
    with Harness(shop.app, store=is_stored) as harness:
        _start(shop.fail.options(guarantee="at_most_once"), is_stored=is_stored)
        harness.advance("1d", raise_errors=False)

    assert shop.attempts == ["1 of 1"]


def test_steps_of_workflows_take_attempts_and_may_run_at_most_once(is_stored: bool) -> None:
    shop = _Shop()
    with Harness(shop.app, store=is_stored) as harness:
        if not is_stored:
            with pytest.raises(UnsupportedFeature, match="workflows need a store"):
                chain(shop.fail.si()).send()
            return
        chain(shop.fail.si().options(max_attempts=2, retry={"base": "1s"})).send()
        harness.advance("1h", raise_errors=False)
        assert shop.attempts == ["1 of 2", "2 of 2"]
        chain(shop.fail.si().options(guarantee="at_most_once")).send()
        harness.advance("1h", raise_errors=False)

    assert shop.attempts == ["1 of 2", "2 of 2", "1 of 1"]


def test_a_job_of_an_ordered_queue_cannot_run_at_most_once(is_stored: bool) -> None:
    app = TaskMQ(queues=[WorkQueue("line", ordered=2)])
    task = app.task(name="line", queue="line", order_key="key")(_take)
    refusal = "guarantee='at_most_once' cannot be combined with order_key"
    with Harness(app, store=is_stored), pytest.raises(InvalidOption, match=refusal):
        task.options(guarantee="at_most_once").send("a")


def _take(key: str) -> None: ...
