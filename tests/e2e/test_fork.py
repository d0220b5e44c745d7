"""A producer that forks after it has connected."""

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial

import pytest

from taskmq import Task, TaskMQ
from tests.e2e.kit import until


def _in_child(call: Callable[[], object]) -> int:
    """Run `call` in a forked child without any clean-up; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            call()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _send_five(task: Task[[int], None], child: int) -> None:
    for number in range(5):
        task.send(child * 10 + number)


@pytest.mark.rabbitmq
def test_parent_and_children_continue_sending_after_a_fork(amqp_url: str) -> None:
    app = TaskMQ(amqp_url)

    @app.task(name="count", queue="forks", result=False)
    def count(number: int) -> None: ...

    count.send(0)
    codes = [_in_child(partial(_send_five, count, child)) for child in (1, 2)]
    for number in range(5):
        count.send(number)

    async def waiting() -> int:
        return sum(entry.ready for entry in await app.sessions.current().broker.stats(["forks"]))

    assert codes == [0, 0]
    with app:
        until(lambda: app.sessions.run_sync(waiting(), instead="") == 16, "all 16 are there")
