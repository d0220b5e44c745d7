"""`taskmq bench`."""

import signal
from pathlib import Path

import pytest

from taskmq.contracts.broker import Broker
from tests.cli.kit import Here, Started, at_broker, run_process
from tests.servers import Redis

_SMALL = ("--jobs", "200", "--rate", "50", "--time", "200ms")


def test_the_bench_measures_the_embedded_broker_and_leaves_no_queue(shop: Path, taskmq: Here) -> None:
    result = taskmq("--app", "shop:app", "bench", *_SMALL, "-o", "json")

    assert result.code == 0, result.err
    found = result.data
    assert found["sent_per_second"] > 0
    assert found["run_per_second"] > 0
    assert 0 < found["start_ms"]["p50"] <= found["start_ms"]["p99"]
    assert 0 < found["state_ms"]["p50"] <= found["state_ms"]["p99"]
    assert (found["jobs"], found["rate"]) == (200, 50)
    assert "sending 200 jobs through the queue bench." in result.err
    assert _count_left("local://.taskmq", result.err) == []
    queues = taskmq("--app", "shop:app", "queue", "list", "-o", "json").data
    assert {row["queue"] for row in queues} <= {"taskmq.parking", "taskmq.unroutable"}


def test_the_bench_prints_sentences_for_people(taskmq: Here) -> None:
    result = taskmq("bench", *_SMALL)

    assert result.code == 0
    assert "jobs/s, one worker process, 32 slots" in result.out
    assert "at 50 jobs/s" in result.out


def _count_left(url: str, said: str) -> list[str]:
    name = next(word for word in said.split() if word.startswith("bench.")).rstrip(",")
    names = [name, f"{name}.p.high", f"{name}.p.low", f"{name}.dlq"]

    async def look(broker: Broker) -> list[str]:
        return [stats.queue for stats in await broker.stats(names)]

    return at_broker(look, url=url)


@pytest.mark.nightly("tests/cli/test_bench.py::test_the_bench_measures_the_embedded_broker_and_leaves_no_queue")
@pytest.mark.rabbitmq
def test_an_interrupted_bench_of_rabbitmq_and_redis_deletes_its_queues(
    home: Path, amqp_url: str, redis_url: str, redis_server: Redis
) -> None:
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url}

    done = run_process(home, "bench", *_SMALL, "-o", "json", env=env)
    with Started(home, "bench", "--jobs", "100", "--time", "1h", env=env) as running:
        running.says("jobs a second for 3600 s")
        assert running.signal_and_wait(signal.SIGINT) == 130
        said = running.said

    assert done.code == 0, done.err
    assert _count_left(amqp_url, done.err) == _count_left(amqp_url, said) == []
    assert redis_server.command("DBSIZE") in (0, 1), redis_server.command("KEYS", "*")


@pytest.mark.nightly("tests/cli/test_queue.py::test_a_broker_that_is_down_is_reported_after_two_seconds")
def test_an_unreachable_broker_is_reported(taskmq: Here) -> None:
    result = taskmq("--url", "amqp://guest:guest@127.0.0.1:1/", "bench", *_SMALL)

    assert result.code == 5
    assert "nothing listens there" in result.err
    assert "<" not in result.err
