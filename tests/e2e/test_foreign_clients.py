"""Messages of foreign clients, valid and invalid, to a real worker on a real RabbitMQ.

None of them ends the worker, and none is lost: each message is executed, is a dead letter with a reason, or is
parked with a reason.
"""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]  # it carries no types
import pytest

from tests.cli.kit import declare
from tests.e2e.clients import amqp_publish, amqplib_publish, pika_publish
from tests.e2e.foreign_worker import QUEUE
from tests.servers import RabbitMQ, eventually

pytestmark = pytest.mark.rabbitmq

_REPOSITORY = Path(__file__).parents[2]
_PATIENCE = timedelta(seconds=40)
_DEAD = f"{QUEUE}.dlq"
_PARKING = "taskmq.parking"


@dataclass(frozen=True)
class _Ended:
    """A message that ended in another queue."""

    queue: str
    body: bytes
    headers: Mapping[str, Any]

    @property
    def reason(self) -> str:
        reason = self.headers["x-taskmq-reason"]
        assert isinstance(reason, str)
        return reason


class _Worker:
    """The worker's process, and the outcome of messages in it."""

    def __init__(self, url: str, effects: Path, process: "subprocess.Popen[str]", server: RabbitMQ) -> None:
        self.url = url
        self.server = server
        self._effects = effects
        self._process = process

    def send(self, body: object, **properties: Any) -> None:
        """Publish a message by pika; anything but bytes is sent as JSON."""
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        pika_publish(self.url, QUEUE, encoded, **properties)

    def ran(self, effect: str) -> int:
        """Return how often a task has left this trace."""
        return self._effects.read_text().splitlines().count(effect)

    def runs(self, effect: str) -> None:
        """Wait until a task has left this trace."""
        eventually(lambda: self.ran(effect), f"the effect {effect!r}", within=_PATIENCE)

    def take(self, queue: str) -> _Ended:
        """Consume the next ended message, which must be in this queue."""
        ended = self.take_from_either()
        assert ended.queue == queue, ended.headers
        return ended

    def take_from_either(self) -> _Ended:
        """Consume the next ended message, dead or parked."""
        ended = eventually(
            lambda: self.got(_DEAD) or self.got(_PARKING), "a message that has ended", within=_PATIENCE
        )
        assert ended is not None
        return ended

    def forget(self) -> None:
        """Delete the messages of an earlier test."""
        while self.got(_DEAD) or self.got(_PARKING):
            pass

    def expect_alive_and_empty(self) -> None:
        """Assert that no message is held, waits, has died or was parked, and that a valid task runs."""
        effect = f"still alive {time.monotonic_ns()}"
        self.send({"task": "note", "args": [effect]})
        self.runs(effect)
        assert self._process.poll() is None
        for queue in (QUEUE, _DEAD, _PARKING):
            eventually(lambda queue=queue: self.is_empty(queue), f"{queue} being empty", within=_PATIENCE)  # type: ignore[misc]

    def got(self, queue: str) -> _Ended | None:
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            method, properties, body = connection.channel().basic_get(queue, auto_ack=True)
        return None if method is None else _Ended(queue, body, properties.headers or {})

    def is_empty(self, queue: str) -> bool:
        # The counts of the management API are some seconds old; the node itself is up to date.
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            declared = connection.channel().queue_declare(queue, passive=True)
        return bool(declared.method.message_count == 0)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(40) == 0


@pytest.fixture
def worker(shared_worker: _Worker) -> _Worker:
    shared_worker.forget()
    return shared_worker


@pytest.fixture(scope="module")
def shared_worker(rabbitmq_server: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Worker]:
    """Start a worker for all tests: each of them must leave it unchanged."""
    url = rabbitmq_server.create_vhost()
    effects = tmp_path_factory.mktemp("foreign") / "effects"
    effects.touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.foreign_worker", url, str(effects)],
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": ".:brokers"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # The queue of dead letters exists only after the first one; here it is read before.
            declare(QUEUE, url=url)
            worker = _Worker(url, effects, process, rabbitmq_server)
            yield worker
            worker.stop()
            # Its held messages would have returned.
            assert worker.is_empty(QUEUE)
        finally:
            process.kill()
    rabbitmq_server.delete_vhost(url)


# Valid tasks


def test_the_smallest_task_from_amqp_publish_runs(worker: _Worker) -> None:
    amqp_publish(worker.url, QUEUE, '{"task": "note", "args": ["from a shell"]}', "-C", "application/json")

    worker.runs("from a shell")
    worker.expect_alive_and_empty()


def test_amqp_publish_works_without_a_content_type(worker: _Worker) -> None:
    amqp_publish(worker.url, QUEUE, '{"task": "note", "args": ["plain"], "kwargs": {"times": 2}}')

    worker.runs("plainplain")
    worker.expect_alive_and_empty()


def test_tasks_from_amqplib_run_and_invalid_ones_are_parked(worker: _Worker) -> None:
    odd = {
        "a": {"nested": [1, "two", {"three": 3.5}]},
        "float": {"!": "float", "value": 1.5},
        "decimal": {"!": "decimal", "value": {"digits": 1234, "places": 2}},
        "at": {"!": "timestamp", "value": 1_700_000_000},
        "no": None,
    }
    messages: list[Mapping[str, object]] = [
        {"body": {"task": "note", "args": ["node"]}},
        {"body": {"task": "note", "kwargs": {"text": "named"}}, "properties": {"contentType": "application/json"}},
        {"body": {"task": "note", "args": ["with odd headers"]}, "properties": {"headers": odd, "priority": 7}},
        {"body": "no task"},
    ]

    amqplib_publish(worker.url, QUEUE, messages)

    for effect in ("node", "named", "with odd headers"):
        worker.runs(effect)
    assert worker.take(_PARKING).body == b'"no task"'
    worker.expect_alive_and_empty()


def test_a_message_without_any_property_is_a_task(worker: _Worker) -> None:
    worker.send({"task": "note", "args": ["bare"]})

    worker.runs("bare")
    worker.expect_alive_and_empty()


def test_a_failing_task_of_a_foreign_client_is_a_dead_letter_under_its_message_id(worker: _Worker) -> None:
    worker.send({"task": "fail", "args": ["alas"], "mine": [1, 2]}, message_id="my own id")

    letter = worker.take(_DEAD)

    assert letter.reason == "error"
    assert letter.headers["x-taskmq-error"] == "ValueError: alas"
    assert "raise ValueError(text)" in letter.headers["x-taskmq-traceback"]
    assert letter.headers["x-taskmq-worker"] == "the worker"
    body = json.loads(letter.body)
    assert (body["id"], body["mine"]) == ("my own id", [1, 2])
    worker.expect_alive_and_empty()


_STAMP = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_ODD_HEADERS: dict[str, dict[str, Any]] = {
    "nested tables": {"table": {"a": {"b": {"c": [1, {"d": "e"}]}}}},
    "decimals": {"decimal": Decimal("1.25")},
    "timestamps": {"at": _STAMP},
    "nothing": {"void": None, "empty": "", "list": []},
    "booleans and bytes": {"yes": True, "bytes": b"\xff\xfe\x00"},
    "large and negative numbers": {"large": 2**63 - 1, "negative": -(2**63)},
    "a name of 255 bytes": {"n" * 255: 1},
    "our own names with other types": {
        "x-taskmq-attempt": "three",
        "x-taskmq-eta": {"a": 1},
        "x-taskmq-unknown": "often",
        "x-taskmq-pub": -5,
        "x-taskmq-republished": _STAMP,
        "x-taskmq-reason": 7,
    },
    "the broker's own names": {"x-death": "never", "x-delivery-count": "many", "x-first-death-queue": 5},
}


@pytest.mark.parametrize("kind", _ODD_HEADERS)
def test_headers_of_any_type_do_not_stop_a_task(worker: _Worker, kind: str) -> None:
    worker.send({"task": "note", "args": [kind]}, headers=_ODD_HEADERS[kind])

    worker.runs(kind)
    worker.expect_alive_and_empty()


@pytest.mark.parametrize("kind", _ODD_HEADERS)
def test_headers_of_any_type_do_not_stop_a_retry_a_dead_letter_or_a_parked_message(
    worker: _Worker, kind: str
) -> None:
    worker.send({"task": "again", "args": [kind]}, headers=_ODD_HEADERS[kind])
    letter = worker.take(_DEAD)
    worker.send(b"no task", headers=_ODD_HEADERS[kind])
    parked = worker.take(_PARKING)

    assert letter.reason == "error"
    assert worker.ran(f"tried {kind}") == 2
    assert "not a task" in parked.reason
    worker.expect_alive_and_empty()


# Invalid ones

_MALFORMED: dict[str, bytes] = {
    "an empty body": b"",
    "garbage bytes": bytes(range(256)),
    "a name in invalid UTF-8": b'{"task": "no\xff\xfe", "args": ["x"]}',
    "half a body": b'{"task": "note", "args": ["ha',
    "two bodies": b'{"task": "note"}{"task": "note"}',
    "a byte order mark": b'\xef\xbb\xbf{"task": "note", "args": [""]}',
    "UTF-16": '{"task": "note", "args": ["x"]}'.encode("utf-16"),
    "an array": b'["note", ["x"]]',
    "null": b"null",
    "an empty object": b"{}",
    "a task that is no text": b'{"task": 7, "args": []}',
    "a version as text": b'{"v": "1", "task": "note", "args": ["x"]}',
    "attempt zero": b'{"task": "note", "args": ["x"], "attempt": 0}',
    "an endless attempt": b'{"task": "note", "args": ["x"], "attempt": 99999999999999999999999999}',
    "an instant beyond time": b'{"task": "note", "args": ["x"], "eta": 9223372036854775807}',
    "an instant before time": b'{"task": "note", "args": ["x"], "expires": -1}',
    "meta of numbers": b'{"task": "note", "args": ["x"], "meta": {"a": 1}}',
    "deep nesting": b'{"task": "anything", "args": ["deep", ' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    "deep nesting beside the task": b'{"task": "note", "args": ["x"], "other": '
    + b'{"a":' * 100_000
    + b"1"
    + b"}" * 100_000
    + b"}",
}


@pytest.mark.parametrize("kind", _MALFORMED)
def test_an_invalid_body_is_parked_unchanged_with_the_reason(worker: _Worker, kind: str) -> None:
    worker.send(_MALFORMED[kind], message_id="an id", headers={"whose": "mine"})

    parked = worker.take(_PARKING)

    assert parked.body == _MALFORMED[kind]
    assert len(parked.reason) > 10
    assert parked.headers["x-taskmq-origin"] == QUEUE
    assert parked.headers["whose"] == "mine"
    worker.expect_alive_and_empty()


def test_an_unknown_version_is_parked_at_once(worker: _Worker) -> None:
    worker.send({"v": 99, "task": "note", "args": ["x"]})

    parked = worker.take(_PARKING)

    assert "version 99" in parked.reason
    assert "x-taskmq-unknown" not in parked.headers
    worker.expect_alive_and_empty()


@pytest.mark.parametrize(
    "content_type", ["application/xml", "text/plain", "application/json2", "\N{SNOWMAN}", "x" * 255]
)
def test_a_foreign_content_type_is_parked(worker: _Worker, content_type: str) -> None:
    worker.send({"task": "note", "args": ["x"]}, content_type=content_type)

    assert "content type" in worker.take(_PARKING).reason
    worker.expect_alive_and_empty()


def test_an_unknown_task_is_parked_after_its_grace_period(worker: _Worker) -> None:
    worker.send({"task": "shop.unheard", "args": ["x"]}, headers={"whose": "mine"}, message_id="unheard")

    parked = worker.take(_PARKING)

    assert "'shop.unheard'" in parked.reason
    assert "2 tries" in parked.reason
    assert json.loads(parked.body) == {"task": "shop.unheard", "args": ["x"]}
    assert parked.headers["whose"] == "mine"
    worker.expect_alive_and_empty()


@pytest.mark.parametrize("seen", [-1, -(2**63), 2**63 - 1, True, "1", None], ids=repr)
def test_an_unknown_task_is_parked_whatever_its_count_says(worker: _Worker, seen: object) -> None:
    worker.send({"task": "shop.unheard"}, headers={"x-taskmq-unknown": seen})

    assert "'shop.unheard'" in worker.take(_PARKING).reason
    worker.expect_alive_and_empty()


_WRONG_ARGUMENTS: dict[str, bytes] = {
    "invalid UTF-8": b'{"task": "note", "args": ["\xff\xfe"]}',
    "a number for a text": b'{"task": "note", "args": [7]}',
    "too few": b'{"task": "note"}',
    "too many": b'{"task": "note", "args": ["x", 1, 2]}',
    "an unknown name": b'{"task": "note", "args": ["x"], "kwargs": {"tmies": 2}}',
    "one of them twice": b'{"task": "note", "args": ["x"], "kwargs": {"text": "y"}}',
    "arguments that are no array": b'{"task": "note", "args": {"text": "x"}}',
    "names that are an array": b'{"task": "note", "args": ["x"], "kwargs": [1]}',
    "a huge integer": b'{"task": "note", "args": ["x", ' + b"9" * 5_000 + b"]}",
    "a huge number": b'{"task": "note", "args": ["x", 1e999]}',
    "a fraction for an integer": b'{"task": "note", "args": ["x", 1.5]}',
}


@pytest.mark.parametrize("kind", _WRONG_ARGUMENTS)
def test_mismatching_arguments_are_a_dead_letter_with_that_reason(worker: _Worker, kind: str) -> None:
    worker.send(_WRONG_ARGUMENTS[kind], message_id="wrong")

    letter = worker.take(_DEAD)

    assert letter.reason == "invalid_arguments"
    assert letter.headers["x-taskmq-error"].startswith("taskmq.errors.InvalidArguments: ")
    worker.expect_alive_and_empty()


def test_an_infinite_number_for_any_value_ends_in_an_outcome(worker: _Worker) -> None:
    worker.send(b'{"task": "anything", "args": ["endless", ' + b"9" * 100_000 + b"]}")

    eventually(lambda: worker.ran("endless") or worker.got(_DEAD) or worker.got(_PARKING), "an end", within=_PATIENCE)
    worker.expect_alive_and_empty()


_LONG: dict[str, dict[str, str]] = {
    "an id of 300 characters": {"id": "i" * 300},
    "an id of 200 characters of 3 bytes": {"id": "\N{SNOWMAN}" * 200},
    "a root of 300 characters": {"root": "r" * 300},
}


@pytest.mark.parametrize("kind", _LONG)
def test_a_name_too_long_for_a_property_ends_in_an_outcome_too(worker: _Worker, kind: str) -> None:
    worker.send({"task": "fail", "args": [kind], **_LONG[kind]})

    ended = worker.take_from_either()

    assert ended.reason
    assert worker.ran(f"failed {kind}") <= 1
    worker.expect_alive_and_empty()


def test_headers_that_fill_a_frame_leave_room_for_the_reason(worker: _Worker) -> None:
    worker.send({"task": "fail", "args": ["\N{SNOWMAN}" * 90_000]}, headers={"mine": "m" * 100_000})

    letter = worker.take_from_either()

    assert letter.reason == "error"
    worker.expect_alive_and_empty()


@pytest.mark.parametrize("is_task", [True, False], ids=["a task", "no task"])
def test_a_body_of_20_megabytes_is_executed_or_parked(worker: _Worker, is_task: bool) -> None:
    size = 20_000_000
    if not worker.server.version.startswith("3."):
        pytest.skip("RabbitMQ 4 itself accepts at most 16 MiB")
    body = b'{"task": "note", "args": ["' + b"m" * size + b'"]}' if is_task else b"m" * size

    worker.send(body)

    if is_task:
        worker.runs(f"{size} characters")
    else:
        assert len(worker.take(_PARKING).body) == size
    worker.expect_alive_and_empty()


def test_a_failing_task_of_maximum_size_ends_even_if_its_copy_is_larger(worker: _Worker) -> None:
    frame = b'{"task": "fail", "args": ["%b"]}'
    body = frame % (b"m" * (16 * 2**20 - len(frame % b"")))
    assert len(body) == 16 * 2**20

    worker.send(body)

    assert worker.take_from_either().reason
    worker.expect_alive_and_empty()
