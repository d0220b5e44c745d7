"""Reactions of tasks: a real RabbitMQ, a real Redis, new files, and replicas of beat that are killed."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pika  # type: ignore[import-untyped]
import pytest
from pika.exceptions import UnroutableError  # type: ignore[import-untyped]

from taskmq.client.plugins import open_state
from taskmq.contracts.broker import BrokerOptions
from taskmq.model.keys import reaction_record_key
from taskmq.reactions.pending_store import read_pending
from tests.cli.kit import Started
from tests.integration.raw_rabbitmq import Raw
from tests.servers import eventually

pytestmark = pytest.mark.rabbitmq

APP = """\
import os
from taskmq import TaskMQ
from taskmq.reactions import FileArrived, ReactionEvent, JobEnded, MessageArrived, all_of, any_of, file, job, message
from taskmq.schedules.triggers import every

app = TaskMQ(name="shop")
RUNS = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def ran(*words: object) -> None:
    os.write(RUNS, (" ".join(map(str, words)) + "\\n").encode())


@app.on(file("in/*.csv", stable="500ms"))
@app.on(file("flagged/*", done=".done"), name="flagged")
@app.task(name="load")
async def load(arrived: FileArrived) -> None:
    ran("load", os.path.basename(arrived.path), arrived.size)


@app.on(job(load))
@app.task(name="index")
async def index(ended: JobEnded) -> None:
    ran("index", ended.job_id, ended.state)


@app.on(message("orders.#"))
@app.task(name="order")
async def order(came: MessageArrived) -> None:
    ran("order", came.routing_key, came.body.decode(), came.message_id)


@app.on(all_of(file("both/*", stable="100ms"), message("go", exchange="signals")))
@app.task(name="both")
async def both(events: list[ReactionEvent]) -> None:
    ran("both", *[type(each).__name__ for each in events])


@app.on(any_of(message("tick.*"), message("tock.*")), debounce="2s")
@app.task(name="quiet")
async def quiet(events: list[ReactionEvent]) -> None:
    ran("quiet", *[each.routing_key for each in events])
"""


class _Place:
    """A folder with an app, and the records of its tasks."""

    def __init__(self, folder: Path, broker: str, state: str, stack: ExitStack) -> None:
        self.folder = folder
        self.broker = broker
        self._environment = {"TASKMQ_URL": broker, "TASKMQ_STATE": state}
        self._stack = stack
        self.publisher = stack.enter_context(Raw(broker))
        self._runner = stack.enter_context(asyncio.Runner())
        self._state = open_state(state, BrokerOptions(name="test"))
        stack.callback(lambda: self._runner.run(self._state.aclose()))
        (folder / "shop.py").write_text(APP)
        for name in ("in", "flagged", "both"):
            (folder / name).mkdir()

    def start(self, *tokens: str) -> Started:
        return self._stack.enter_context(Started(self.folder, *tokens, env=self._environment))

    def beat(self) -> Started:
        beat = self.start("beat", "shop:app")
        beat.says("taskmq beat:")
        return beat

    def publish(self, exchange: str, key: str, body: bytes, message_id: str) -> None:
        """Publish as soon as a queue is bound."""
        properties = pika.BasicProperties(message_id=message_id, delivery_mode=2)

        def is_stored() -> bool:
            with contextlib.suppress(UnroutableError):
                self.publisher.channel.basic_publish(exchange, key, body, properties, mandatory=True)
                return True
            return False

        self.until(is_stored, f"a queue is bound to {exchange}")

    def flag(self, name: str) -> None:
        """Create an empty file that marks another as complete."""
        (self.folder / "flagged" / name).touch()
        (self.folder / "flagged" / f"{name}.done").touch()

    def has_loaded(self, name: str) -> bool:
        return [name, "0"] in self.runs("load")

    def runs(self, kind: str) -> list[list[str]]:
        with contextlib.suppress(FileNotFoundError):
            # An incomplete line at the end is left for the next read.
            whole, _, _ = (self.folder / "runs").read_text().rpartition("\n")
            return [line.split()[1:] for line in whole.splitlines() if line.split()[0] == kind]
        return []

    def has_noted(self, reaction: str, count: int) -> bool:
        """Whether the record of a reaction contains that many events."""
        name = reaction_record_key("shop", reaction)
        (standing,) = self._runner.run(read_pending(self._state.schedules, [name]))
        return len(standing.seen) == count

    def until(self, check: Callable[[], bool], what: str) -> None:
        eventually(check, what, within=timedelta(seconds=30))


@pytest.fixture
def place(tmp_path: Path, amqp_url: str, redis_url: str) -> Iterator[_Place]:
    with ExitStack() as stack:
        yield _Place(tmp_path, amqp_url, redis_url, stack)


def test_files_messages_and_jobs_are_reacted_to_once_even_if_a_replica_is_killed(place: _Place) -> None:
    place.start("worker", "shop:app")
    beats = [place.beat(), place.beat()]

    sent = 200
    for number in range(sent):
        place.publish("amq.topic", f"orders.eu.{number % 3}", b"%d" % number, f"m{number}")
        (place.folder / "in" / f"{number}.csv").write_bytes(b"x" * number) if number < 30 else None
        if number == 100:
            beats[0].process.send_signal(signal.SIGKILL)
    (place.folder / "flagged" / "big").write_text("half")
    place.flag("small")
    place.until(partial(place.has_loaded, "small"), "what is done is reacted to")
    assert ["big", "4"] not in place.runs("load")
    (place.folder / "flagged" / "big").write_text("whole")
    (place.folder / "flagged" / "big.done").touch()

    place.until(lambda: len({run[1] for run in place.runs("order")}) == sent, "every message is reacted to")
    place.until(lambda: len({run[0] for run in place.runs("load")}) == 32, "every file is reacted to")
    place.until(lambda: len(place.runs("index")) == 32, "every job is reacted to")
    # Duplicates would have arrived by now: new replicas, and an old one, have polled everything.
    for number in range(2):
        beats.append(place.beat())
        place.flag(f"sentry{number}")
        place.until(partial(place.has_loaded, f"sentry{number}"), "it is looked again")
    place.until(lambda: len(place.runs("index")) == 34, "every job is reacted to")

    assert Counter(run[1] for run in place.runs("order")) == Counter(str(number) for number in range(sent))
    assert {tuple(run) for run in place.runs("order")} == {
        (f"orders.eu.{number % 3}", str(number), f"m{number}") for number in range(sent)
    }
    empty = [[name, "0"] for name in ("small", "sentry0", "sentry1")]
    assert sorted(place.runs("load")) == sorted(
        [*([f"{number}.csv", str(number)] for number in range(30)), ["big", "5"], *empty]
    )
    assert len({run[0] for run in place.runs("index")}) == len(place.runs("index")) == 34
    assert {run[1] for run in place.runs("index")} == {"succeeded"}


@pytest.mark.nightly(
    "tests/integration/test_reactions.py::test_files_messages_and_jobs_are_reacted_to_once_even_if_a_replica_is_killed"
)
def test_a_message_that_arrives_while_no_beat_runs_waits_for_one(place: _Place) -> None:
    first = place.beat()
    place.publish("amq.topic", "orders.early", b"0", "first")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()

    place.publish("amq.topic", "orders.late", b"1", "m")
    # As left by an earlier version of the code.
    place.publisher.channel.queue_bind("taskmq.on.shop.order", "amq.topic", "bills.#")
    place.publish("amq.topic", "bills.new", b"2", "bill")
    place.beat()
    place.start("worker", "shop:app")

    both = [["orders.early", "0", "first"], ["orders.late", "1", "m"]]
    place.until(lambda: sorted(place.runs("order")) == both, "it is reacted to")
    place.until(lambda: place.publisher.ready("taskmq.on.shop.order") == 0, "what nobody waits for is dropped")
    # A message too large to be remembered is diverted and blocks nothing.
    place.publish("signals", "go", b"x" * 70_000, "large")
    place.until(lambda: place.publisher.ready("taskmq.parking") == 1, "it is parked")
    letter = place.publisher.take("taskmq.parking")
    assert (letter.properties.message_id, len(letter.body)) == ("large", 70_000)
    assert letter.properties.headers["x-taskmq-origin"] == "taskmq.on.shop.both.1"
    assert place.runs("both") == []


@pytest.mark.nightly("tests/unit/beat/test_reactions.py")
def test_a_file_and_a_message_are_one_call_and_a_growing_file_is_waited_for(place: _Place) -> None:
    place.start("worker", "shop:app")
    beats = [place.beat(), place.beat()]
    # The exchange is declared before it.
    place.until(lambda: place.publisher.refusal("taskmq.on.shop.both.1", {}, passive=True) == 0, "the beats listen")

    (place.folder / "both" / "a").write_text("a")
    for number in range(10):
        key = f"{'tick' if number % 2 else 'tock'}.{number}"
        place.publish("amq.topic", key, b"", key)
        # Two replicas share the queue: an unacked message of one of them would arrive last.
        place.until(partial(place.has_noted, "quiet", number + 1), "it has been noted")
    assert place.runs("both") == place.runs("quiet") == []
    beats[0].process.send_signal(signal.SIGKILL)
    place.publish("signals", "go", b"", "go")

    place.until(lambda: place.runs("both") == [["FileArrived", "MessageArrived"]], "both have come")
    place.until(lambda: place.runs("quiet") == [["tick.9", "tock.8"]], "nothing more has come")
    # A message alone is not both; the reaction handles later events.
    place.publish("signals", "go", b"", "again")
    place.publish("amq.topic", "tick.last", b"", "last")
    place.until(lambda: ["tick.last"] in place.runs("quiet"), "the last one is reacted to")
    assert len(place.runs("both")) == 1
