"""RabbitMQ gets each message's acknowledgement and its dead letter, whatever code of the app raises at a border."""

from pathlib import Path

import pytest

from taskmq.options.task_options import ExecutorKind
from tests.unit.worker.border_kit import check_every_border, watch_runs
from tests.unit.worker.foreign_code import EXECUTORS

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]


# The gate runs the other executors without servers.
_IN_THE_GATE = {("async", True)}


@pytest.mark.parametrize(
    ("executor", "stored"),
    [
        pytest.param(
            executor,
            stored,
            marks=() if (executor, stored) in _IN_THE_GATE else pytest.mark.matrix,
            id=f"{executor}-{'store' if stored else 'broker'}",
        )
        for executor in EXECUTORS
        for stored in (False, True)
    ],
)
async def test_each_job_ends_once_whatever_is_raised_at_its_borders(
    executor: ExecutorKind, amqp_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    runs = watch_runs(tmp_path, monkeypatch)

    await check_every_border(executor, runs, stored=stored, url=amqp_url)
