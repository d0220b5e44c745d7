"""Whatever code of the app raises at a border, RabbitMQ gets each message's acknowledgement, and its dead letter."""

from pathlib import Path

import pytest

from taskmq.options.task_options import ExecutorKind
from tests.unit.worker.border_kit import check_every_border, watch_runs
from tests.unit.worker.foreign_code import EXECUTORS

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]


@pytest.mark.parametrize("stored", [False, True], ids=["broker", "store"])
@pytest.mark.parametrize("executor", EXECUTORS)
async def test_each_job_ends_once_whatever_is_raised_at_its_borders(
    executor: ExecutorKind, amqp_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    runs = watch_runs(tmp_path, monkeypatch)

    await check_every_border(executor, runs, stored=stored, url=amqp_url)
