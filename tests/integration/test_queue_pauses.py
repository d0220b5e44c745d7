"""A paused queue, on a real RabbitMQ with a real Redis, and a worker in a separate process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import SHOP, Started, names_in, run_process
from tests.servers import eventually

pytestmark = pytest.mark.rabbitmq


@pytest.mark.nightly("tests/cli/test_queue.py::test_workers_stop_and_start_with_a_pause_even_over_a_restart")
def test_a_pause_survives_restarts_and_requeues_prefetched_jobs(
    tmp_path: Path, amqp_url: str, redis_url: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url, "TASKMQ_APP": "shop:app"}

    def taskmq(*words: str) -> str:
        done = run_process(tmp_path, *words, env=env)
        assert done.code == 0, done.err
        return done.out

    def waiting() -> int:
        return len(names_in("images", url=amqp_url))

    def show() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(taskmq("queue", "show", "images", "-o", "json"))
        return found

    with Started(tmp_path, "worker", "shop:app", "-c", "1", "--grace", "0s", env=env) as worker:
        worker.says("waiting for jobs")
        taskmq("send", "shop.sleep", "--args", "[3600]")
        taskmq("send", "shop.double", "--args", "[1]")
        eventually(lambda: waiting() == 0, "both are in the worker's hands")

        # A quorum queue drops the consumer of `waiting` some time after that has closed. Each poll of `show` is such
        # a consumer, too: assertions use the earlier output, not another poll.
        shown = eventually(
            lambda: found if (found := show())["consumers"] == 1 else None, "the worker alone consumes"
        )
        assert shown is not None
        assert (shown["ready"], shown["in_hand"], shown["delayed"]) == (0, 2, None)
        assert len(shown["workers"]) == 1

        taskmq("queue", "pause", "images", "--note", "a test")

        worker.says("queue 'images' is paused (a test)")
        eventually(waiting, "the one that has not begun is given back")
        assert waiting() == 1
    assert "paused since" in taskmq("queue", "list", "-Q", "images")

    with Started(tmp_path, "worker", "shop:app", "-c", "2", "--grace", "0s", env=env) as worker:
        worker.says("queue 'images' is paused (a test)")
        assert waiting() == 2
        taskmq("queue", "resume", "images")
        eventually(lambda: waiting() == 0, "both are in the worker's hands")
