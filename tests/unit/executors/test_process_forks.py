"""A fork of a task's process reports for no run, neither its own nor the next."""

import os
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from taskmq.errors import WorkerLost
from taskmq.executors import ProcessExecutor
from taskmq.executors.frames import RunAnswer, write_frame
from taskmq.model.envelope import JSON, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from tests.coroutines import run_by
from tests.unit.executors.forking_tasks import FORKS, app
from tests.unit.executors.kit import run

pytestmark = pytest.mark.real_time


def _execution(name: str, *args: Any) -> Execution:
    signature = app.tasks[name].signature
    raw_args, raw_kwargs = signature.encode(args, {}, JSON)
    envelope = Envelope(task=name, args=raw_args, kwargs=raw_kwargs)
    context = Context(envelope, job_id="job-1", max_attempts=1, queue="work", redelivered=False)
    return Execution(context, app.tasks[name].call, args, {}, envelope, JSON, None)


def _with_one_process(test: Callable[[ProcessExecutor], Awaitable[None]]) -> None:
    async def main() -> None:
        executor = ProcessExecutor("tests.unit.executors.forking_tasks:app", size=1, url="memory://given", state=None)
        try:
            await test(executor)
        finally:
            await executor.aclose()

    run(main())


@run_by(_with_one_process)
async def test_each_run_gets_its_own_value_even_if_its_process_forked(executor: ProcessExecutor, /) -> None:
    before = await executor.run(_execution("pid"))

    # The fork that stays is the last: the others wait until all forks have ended.
    for how in sorted(FORKS, key=lambda each: each == "stays"):
        found = [await executor.run(_execution("fork", how))]
        found += [await executor.run(_execution("echo", text)) for text in ("b", "c", "d")]

        assert found == [how, "b", "c", "d"]
        assert await executor.run(_execution("pid")) == before


@run_by(_with_one_process)
async def test_a_fork_ends_after_the_code_that_created_it(executor: ProcessExecutor, /) -> None:
    for how, code in (("returns", 0), ("leaves", 7), ("raises", 1)):
        assert await executor.run(_execution("exit_code", how)) == code


@run_by(_with_one_process)
async def test_a_task_that_closes_the_pipes_of_its_process_loses_only_the_process(
    executor: ProcessExecutor, /
) -> None:
    for replaced in (False, True):
        with pytest.raises(WorkerLost):
            await executor.run(_execution("close_pipes", replaced))

    assert await executor.run(_execution("echo", "b")) == "b"


@run_by(_with_one_process)
async def test_an_answer_of_another_run_or_process_is_refused_and_the_process_replaced(
    executor: ProcessExecutor, /
) -> None:
    for number, of_fork in ((1, False), (0, True)):
        before = await executor.run(_execution("pid"))
        assert isinstance(before, int)
        # As a foreign process would write it in its name.
        forged = RunAnswer(
            False, pickle.dumps("forged"), executor._idle[0].runs + number, os.getpid() if of_fork else before
        )
        with next(each for each in Path(f"/proc/{before}/fd").iterdir() if _is_of_answers(each)).open("wb") as pipe:
            write_frame(pipe.fileno(), forged)

        with pytest.raises(WorkerLost, match="answered for another run"):
            await executor.run(_execution("echo", "a"))

        assert await executor.run(_execution("pid")) != before

    assert await executor.run(_execution("echo", "b")) == "b"


def _is_of_answers(descriptor: Path) -> bool:
    """Whether the descriptor is the process's end of the answer pipe, the only one it writes to."""
    facts = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text()
    flags = int(facts.split("flags:")[1].split()[0], 8)
    return (
        int(descriptor.name) > 2
        and flags & os.O_ACCMODE == os.O_WRONLY
        and str(descriptor.readlink()).startswith("pipe:")
    )
