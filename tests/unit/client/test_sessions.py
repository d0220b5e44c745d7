"""Sync twins of async methods: behaviour, signature and documentation."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from taskmq import Job, TaskMQ
from taskmq.client.sessions import Sessions, blocking
from taskmq.errors import ScheduleNotFound
from taskmq.reactions import Reactions
from taskmq.schedules import Schedules
from taskmq.stored_jobs import Definitions, Jobs, Pools
from taskmq.stored_jobs.task_catalogue import TaskCatalogue
from taskmq.tasks.call import Call
from taskmq.tasks.task import Task
from taskmq.workflow.parts import Workflow
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.runs import Runs
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time

_FACES = (Call, Definitions, Job, Jobs, Pools, Reactions, Run, Runs, Schedules, Task, TaskCatalogue, Workflow)
# Constructors of a bulk or a stream, and methods that only a server calls.
_ALONE = {"areplace"}


def _pairs() -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    return [
        (getattr(face, name[1:]), function)
        for face in _FACES
        for name, function in inspect.getmembers(face, inspect.iscoroutinefunction)
        if name.startswith("a") and name not in _ALONE
    ]


@pytest.mark.parametrize(("twin", "other"), _pairs(), ids=lambda function: function.__qualname__)
def test_an_async_method_has_a_sync_twin_with_the_same_signature(
    twin: Callable[..., Any], other: Callable[..., Any]
) -> None:
    takes = [each.replace(annotation=object) for each in inspect.signature(twin).parameters.values()]

    assert not inspect.iscoroutinefunction(twin)
    assert twin.__name__ == other.__name__[1:]
    if "_many" not in twin.__name__:
        assert inspect.signature(twin) == inspect.signature(other)
    assert [each.replace(annotation=object) for each in inspect.signature(other).parameters.values()] == takes
    assert inspect.getdoc(twin)


class _Asker:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def aask(self, question: str, *, times: int = 1) -> str:
        """Ask."""
        return question * times

    ask = blocking(aask)


class _Louder(_Asker):
    async def aask(self, question: str, *, times: int = 1) -> str:
        return (await super().aask(question, times=times)).upper()


def test_a_twin_returns_the_result_of_its_coroutine() -> None:
    assert _Asker(TaskMQ(new_url()).sessions).ask("why", times=2) == "whywhy"


def test_a_twin_raises_the_error_of_its_coroutine() -> None:
    with pytest.raises(ScheduleNotFound, match="nightly"):
        TaskMQ(new_url()).schedules.remove("nightly")


def test_a_twin_calls_the_overriding_coroutine_of_a_subclass() -> None:
    assert _Louder(TaskMQ(new_url()).sessions).ask("why") == "WHY"


async def test_a_twin_called_in_a_running_loop_names_the_coroutine() -> None:
    asker = _Asker(TaskMQ(new_url()).sessions)

    with pytest.warns(RuntimeWarning, match="use `aask`") as caught:
        asker.ask("why")

    assert caught[0].filename == __file__


def test_a_call_that_does_not_match_the_signature_is_refused_before_it_runs() -> None:
    with pytest.raises(TypeError, match="often"):
        _Asker(TaskMQ(new_url()).sessions).ask("why", often=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_twin_has_its_own_documentation() -> None:
    assert _Asker.ask.__qualname__ == "_Asker.ask"
    assert _Asker.ask.__doc__ == "Ask."
