"""Lifetime of an app's connections: loops, threads, forks, exit of the process."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from taskmq import BrokerUnavailable, Job, Task, TaskMQ
from taskmq.client.portal import current_portal
from taskmq.model.values.return_type import ReturnType
from taskmq.testing import FakeClock
from tests.unit.app_kit import messages, new_url


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    with TaskMQ(new_url(), clock=FakeClock()) as app:
        yield app


def sell(item: str = "") -> None: ...


def test_each_event_loop_has_one_session(app: TaskMQ) -> None:
    async def main() -> list[Any]:
        async with app:
            return [app.sessions.current(), app.sessions.current()]

    one, same = asyncio.run(main())
    other, _ = asyncio.run(main())

    assert one is same
    assert other is not one


def test_a_loop_closed_before_its_app_leaves_nothing_for_the_next_loop(app: TaskMQ) -> None:
    defined = app.task(sell)

    async def main() -> Any:
        await defined.asend()
        return app.sessions.current()

    sessions = [asyncio.run(main()) for _ in range(5)]

    assert len(set(map(id, sessions))) == 5
    assert len(messages(app)) == 5


def test_a_loop_may_use_the_app_again_after_aclose(app: TaskMQ) -> None:
    defined = app.task(sell)

    async def main() -> None:
        await defined.asend()
        first = app.sessions.current()
        await app.aclose()
        await app.aclose()
        await defined.asend()
        assert app.sessions.current() is not first
        with pytest.raises(BrokerUnavailable):
            await first.broker.connect(timeout=1)
        await app.aclose()

    asyncio.run(main())

    assert len(messages(app)) == 2


def test_a_sender_without_a_loop_may_use_the_app_again_after_close() -> None:
    app = TaskMQ(new_url())
    defined = app.task(sell)

    app.close()
    defined.send()
    app.close()
    app.close()
    defined.send()
    with app:
        defined.send()

    assert len(messages(app)) == 3
    app.close()


def test_close_does_not_touch_running_loops(app: TaskMQ) -> None:
    defined = app.task(sell)

    async def main() -> None:
        async with app:
            await defined.asend()
            session = app.sessions.current()
            await asyncio.to_thread(app.close)
            assert app.sessions.current() is session
            await defined.asend()

    asyncio.run(main())

    assert len(messages(app)) == 2


def test_a_blocking_send_inside_a_loop_warns_once_and_names_its_async_twin(app: TaskMQ) -> None:
    defined = app.task(sell)

    async def main() -> None:
        with pytest.warns(RuntimeWarning, match=r"inside a running event loop.*use `asend`$") as caught:
            defined.send()
        assert caught[0].filename == __file__
        defined.send()
        defined.send_many([()])

    asyncio.run(main())

    assert len(messages(app)) == 3


def _job(defined: Task[..., Any]) -> Job[Any]:
    return Job("7", task="", jobs=defined.services.jobs, returns=ReturnType(Any))


_BLOCKING: list[tuple[str, Callable[[Any], object]]] = [
    ("asend_many", lambda defined: defined.send_many([()])),
    ("aresult", lambda defined: _job(defined).result(timeout=0)),
    ("astate", lambda defined: _job(defined).state()),
]


@pytest.mark.real_time
@pytest.mark.parametrize(("twin", "call"), _BLOCKING)
async def test_every_call_that_blocks_a_loop_names_its_twin(
    app: TaskMQ, twin: str, call: Callable[[Any], object]
) -> None:
    defined = app.task(sell)

    with pytest.warns(RuntimeWarning, match=rf"use `{twin}`$"), contextlib.suppress(TimeoutError):
        call(defined)


def test_a_blocking_send_warning_raised_as_an_error_leaves_no_unawaited_coroutine(app: TaskMQ) -> None:
    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match=r"use `astate`"):
                app.job("7").state()

    asyncio.run(main())
    # Pytest raises an error for a coroutine that is collected without having been awaited.
    gc.collect()


@pytest.mark.parametrize("call", [lambda defined: defined.send(), *(call for _, call in _BLOCKING)])
def test_code_in_the_portal_thread_may_block(app: TaskMQ, call: Callable[[Any], object]) -> None:
    """Finalizers and logging handlers run in any thread; a warning would be useless to them."""
    defined = app.task(sell)

    async def inside() -> list[warnings.WarningMessage]:
        with warnings.catch_warnings(record=True) as said, contextlib.suppress(TimeoutError):
            warnings.simplefilter("always")
            call(defined)
        return said

    assert current_portal().call(inside) == []


def test_many_threads_send_through_one_session(app: TaskMQ) -> None:
    defined = app.task(sell)
    start = threading.Barrier(8)

    def send(number: int) -> list[str]:
        start.wait(timeout=30)
        return [defined.send(f"{number}-{i}").id for i in range(50)]

    with ThreadPoolExecutor(8) as threads:
        ids = [job_id for each in threads.map(send, range(8)) for job_id in each]

    found = messages(app)
    assert {each.envelope.id for each in found} == set(ids)
    assert len(found) == 400


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Since 3.12 Python warns about any fork of a process with threads.
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _read_sent(path: Path) -> list[bytes]:
    return [bytes(each.envelope.args) for each in messages(TaskMQ(f"local://{path}"))]


_HEAD = """
import os, sys
from taskmq import TaskMQ
app = TaskMQ("local://" + sys.argv[1])
@app.task(name="t")
def t(who: str) -> None: ...
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        *(
            pytest.param(
                end,
                marks=pytest.mark.nightly(
                    "tests/unit/app/test_app_lifecycle.py::test_a_forked_child_sends_independently_and_the_parent_continues"
                ),
            )
            for end in ("app.close(); os._exit(0)", "sys.exit(0)")
        ),
    ],
)
def test_a_forked_child_sends_independently_and_the_parent_continues(tmp_path: Path, end: str) -> None:
    program = f"""{_HEAD}
t.send("parent")
pid = os.fork()
if pid == 0:
    t.send("child")
    t.send("child again")
    {end}
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
t.send("parent again")
sys.exit(status)
"""

    done = _run(program, str(tmp_path / "queue"))

    assert (done.returncode, done.stderr) == (0, "")
    assert _read_sent(tmp_path / "queue") == [b'["parent"]', b'["child"]', b'["child again"]', b'["parent again"]']


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_forked_inside_a_coroutine_sends_independently(tmp_path: Path) -> None:
    program = f"""{_HEAD}
import asyncio
async def main():
    async with app:
        await t.asend("parent")
        pid = os.fork()
        if pid == 0:
            t.send("child")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        await t.asend("parent again")
asyncio.run(main())
"""

    done = _run(program, str(tmp_path / "queue"))

    assert (done.returncode, done.stderr) == (0, "")
    assert _read_sent(tmp_path / "queue") == [b'["parent"]', b'["child"]', b'["parent again"]']


@pytest.mark.parametrize(
    "end",
    [
        "",
        *(
            pytest.param(
                end,
                marks=pytest.mark.nightly(
                    "tests/unit/app/test_app_lifecycle.py::test_jobs_sent_before_a_normal_exit_of_the_process_arrive"
                ),
            )
            for end in ("sys.exit(0)", "app.close()", "list(t.services.producer.stream_sync([])); del t, app")
        ),
    ],
)
def test_jobs_sent_before_a_normal_exit_of_the_process_arrive(tmp_path: Path, end: str) -> None:
    done = _run(f'{_HEAD}\nt.send("a")\nt.send_many([("b",), ("c",)])\n{end}\n', str(tmp_path / "queue"))

    assert (done.returncode, done.stderr) == (0, "")
    assert _read_sent(tmp_path / "queue") == [b'["a"]', b'["b"]', b'["c"]']


def test_jobs_sent_by_an_exit_handler_arrive(tmp_path: Path) -> None:
    done = _run(
        f'{_HEAD}\nimport atexit\natexit.register(t.send, "last")\nt.send("first")\n', str(tmp_path / "queue")
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert _read_sent(tmp_path / "queue") == [b'["first"]', b'["last"]']
