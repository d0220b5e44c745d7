"""Replicas of beat that poll for files and fire pending calls."""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.beat import Beat
from taskmq.beat.folders import Folder, scan
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StateUnavailable, TooLarge, UnsupportedFeature
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.reactions import (
    Cause,
    FileArrived,
    FileArrives,
    JobEnded,
    MessageArrived,
    Reaction,
    ReactionDelivery,
    ReactionEvent,
    all_of,
    any_of,
    file,
    job,
    message,
)
from taskmq.reactions.model.pending import MOST_FIRINGS, RecordedEvent
from taskmq.schedules.triggers import every
from taskmq_local import forget_memory, open_memory_state
from tests.coroutines import run_by
from tests.unit.beat.stage import Stage, play
from tests.unit.worker.staged import Fault, Points, StagedApp


def _end_event(name: str) -> RecordedEvent:
    return RecordedEvent(
        name, JobEnded(job_id=name, task="load", state="succeeded", finished=datetime(2027, 1, 1, tzinfo=UTC))
    )


def _define(app: TaskMQ) -> None:
    @app.task(name="load", queue="other")
    async def load() -> None: ...

    @app.on(all_of(job(load), every("1m")))
    @app.task(name="publish", queue="work")
    async def publish(happened: list[ReactionEvent]) -> None: ...


async def _tell(app: StagedApp, name: str) -> None:
    await ReactionDelivery(app.name, app.producer).deliver(
        app.reactions["publish"], 0, _end_event(name), cause=Cause(name, name)
    )


async def _sent_envelopes(app: StagedApp) -> list[Envelope]:
    return [decode_envelope(each.body) for each in await app.messages("work")]


@run_by(play, _define)
async def test_any_number_of_replicas_make_one_call_for_a_job_and_a_time(stage: Stage, /) -> None:
    for _ in range(3):
        await stage.start()
    await stage.advance(5)
    for _ in range(3):
        await _tell(stage.apps[0], "j1")
    await stage.advance(5)
    assert await _sent_envelopes(stage.app) == []

    for _ in range(5):
        await stage.advance(30)
    (first,) = await _sent_envelopes(stage.app)
    await _tell(stage.apps[1], "j2")
    for _ in range(5):
        await stage.advance(1)

    assert [each.task for each in await _sent_envelopes(stage.app)] == ["publish", "publish"]
    (second,) = [each for each in await _sent_envelopes(stage.app) if each.id != first.id]
    assert first.key == first.id != second.id
    assert (await stage.apps[0].reactions.astatus("publish")).fired == 2


@run_by(play, _define)
async def test_a_replica_that_misses_its_confirm_is_followed_by_the_same_call(stage: Stage, /) -> None:
    points = Points()
    await stage.start(points=points)
    await _tell(stage.apps[0], "j1")
    points.rest = Fault.UNKNOWN
    for _ in range(4):
        await stage.advance(30)
    await stage.start()
    for _ in range(20):
        await stage.advance(1)

    assert len({each.id for each in await _sent_envelopes(stage.app)}) == 1
    assert (await stage.apps[1].reactions.astatus("publish")).fired == 1


@run_by(play, _define)
async def test_calls_fire_once_the_state_answers_again(stage: Stage, /) -> None:
    points = Points()
    await stage.start(points=points)
    await _tell(stage.apps[0], "j1")
    points.rest = Fault.REFUSED
    for _ in range(4):
        await stage.advance(30)
    assert await _sent_envelopes(stage.app) == []
    with pytest.raises(StateUnavailable):
        await _tell(stage.apps[0], "j2")

    points.rest = Fault.NONE
    for _ in range(5):
        await stage.advance(1)
    assert len(await _sent_envelopes(stage.app)) == 1


def test_no_more_than_a_hundred_calls_may_wait() -> None:
    def define(app: TaskMQ) -> None:
        _define(app)

        @app.on(any_of(job("load"), every("1d")), name="each")
        @app.task(name="each", queue="work")
        async def each(happened: list[ReactionEvent]) -> None: ...

    async def test(stage: Stage) -> None:
        app = stage.twin()
        for number in range(MOST_FIRINGS):
            await ReactionDelivery(app.name, app.producer).deliver(app.reactions["each"], 0, _end_event(str(number)))
        with pytest.raises(StateUnavailable, match="100 calls of reaction each wait"):
            await ReactionDelivery(app.name, app.producer).deliver(app.reactions["each"], 0, _end_event("more"))

        large = RecordedEvent("m", MessageArrived(routing_key="m", body=b"x" * 70_000))
        with pytest.raises(TooLarge):
            await ReactionDelivery(app.name, app.producer).deliver(app.reactions["each"], 0, large)

    play(test, define)


def test_a_beat_that_waits_for_messages_ends_if_the_broker_has_no_topic_exchanges() -> None:
    def define(app: TaskMQ) -> None:
        @app.on(message("orders.#"))
        @app.task(name="order", queue="work")
        async def order(came: MessageArrived) -> None: ...

    async def test(stage: Stage) -> None:
        with pytest.raises(UnsupportedFeature, match=r"memory://.* has no topic exchanges: use RabbitMQ"):
            await Beat(stage.twin()).run()

    play(test, define)


@pytest.fixture
def memory() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield name
    forget_memory(name)


class _Seen(Middleware):
    """Records sends; fails as often as requested."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.fails = 0

    def send(self, sending: Sending) -> None:
        if self.fails:
            self.fails -= 1
            raise ValueError("broken")
        self.sent.append(sending.envelope.id or "")


def _watching(memory: str, folder: Path, test: Callable[[Callable[[], Folder], _Seen], Awaitable[None]]) -> None:
    seen = _Seen()
    app = TaskMQ(f"memory://{memory}", middleware=[seen])

    @app.on(file(f"{folder}/*.csv", done=".done"))
    @app.task(name="load", queue="work")
    async def load(arrived: FileArrived) -> None: ...

    async def main() -> None:
        async with app:
            state = open_memory_state(f"memory://{memory}", BrokerOptions(clock=SystemClock()))
            reaction = app.reactions["load"]
            (condition,) = reaction.plan.conditions
            assert isinstance(condition, FileArrives)

            def replica() -> Folder:
                return Folder(
                    reaction,
                    0,
                    condition,
                    app=app.name,
                    delivery=ReactionDelivery(app.name, app.producer),
                    claims=state.claims,
                    owner=uuid.uuid4().hex,
                )

            await test(replica, seen)

    asyncio.run(main())


def test_all_replicas_together_report_a_file_once_and_again_after_a_rewrite(memory: str, tmp_path: Path) -> None:
    async def test(replica: Callable[[], Folder], seen: _Seen) -> None:
        one, two = replica(), replica()
        (tmp_path / "a.csv").write_text("1")
        await asyncio.gather(one.look(), two.look())
        assert seen.sent == []
        (tmp_path / "a.csv.done").touch()
        for _ in range(3):
            await asyncio.gather(one.look(), two.look())
        assert len(seen.sent) == 1
        # A replica that starts later knows it too.
        await replica().look()
        assert len(seen.sent) == 1

        (tmp_path / "a.csv").write_text("12")
        os.utime(tmp_path / "a.csv.done")
        await asyncio.gather(one.look(), two.look())
        assert len(set(seen.sent)) == len(seen.sent) == 2

    _watching(memory, tmp_path, test)


def test_a_file_whose_call_failed_is_reported_by_the_next_poll(memory: str, tmp_path: Path) -> None:
    async def test(replica: Callable[[], Folder], seen: _Seen) -> None:
        one = replica()
        (tmp_path / "a.csv").write_text("1")
        (tmp_path / "a.csv.done").touch()
        seen.fails = 2
        for _ in range(2):
            await one.look()
            assert seen.sent == []
        await one.look()
        assert len(seen.sent) == 1

    _watching(memory, tmp_path, test)


def test_a_flag_older_than_its_file_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "a.ok").touch()
    os.utime(tmp_path / "a.ok", (1, 1))
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    (tmp_path / "dangling").symlink_to("nowhere")

    (found,) = scan(file(f"{tmp_path}/*", done=".ok"))

    assert (found.path, found.size, found.is_flagged) == (f"{tmp_path}/a", 1, False)
    os.utime(tmp_path / "a.ok")
    assert scan(file(f"{tmp_path}/*", done=".ok"))[0].is_flagged
    assert [each.path for each in scan(file(f"{tmp_path}/**/a", stable=1))] == [f"{tmp_path}/a"]


def test_a_failed_poll_raises_where_it_is_awaited(memory: str, tmp_path: Path) -> None:
    def broken(condition: FileArrives) -> list[object]:
        raise ValueError(condition.pattern)

    async def test(replica: Callable[[], Folder], seen: _Seen) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("taskmq.beat.folders.scan", broken)
            with pytest.raises(ValueError, match="csv"):
                await replica().look()
        assert seen.sent == []

    _watching(memory, tmp_path, test)


def test_the_requirements_of_a_reaction_are_known() -> None:
    app = TaskMQ()

    @app.on(job("a"))
    @app.task(name="one")
    def one(ended: JobEnded) -> None: ...

    @app.on(any_of(job("a"), every("1h")), debounce="5s")
    @app.task(name="two")
    def two(happened: list[ReactionEvent]) -> None: ...

    first, second = app.reactions.values()
    assert isinstance(first, Reaction)
    assert (first.is_direct, first.needs_beat, second.is_direct, second.needs_beat) == (True, False, False, True)
    assert (first.takes_list, second.takes_list) == (False, True)
    assert second.describe() == "when a job of a has succeeded or it is due every hour, and nothing more for 5 s"


def test_a_debounced_condition_alone_passes_its_last_event_to_the_task() -> None:
    def define(app: TaskMQ) -> None:
        @app.on(job("load"), debounce="5s")
        @app.task(name="quiet", queue="work")
        async def quiet(ended: JobEnded) -> None: ...

        @app.task(name="load", queue="other")
        async def load() -> None: ...

    async def test(stage: Stage) -> None:
        await stage.start()
        app = stage.apps[0]
        for name in ("j1", "j2"):
            await ReactionDelivery(app.name, app.producer).deliver(app.reactions["quiet"], 0, _end_event(name))
        for _ in range(8):
            await stage.advance(1)

        (call,) = await _sent_envelopes(stage.app)
        (event,) = msgspec.json.decode(call.args, type=list[JobEnded])
        assert event.job_id == "j2"

    play(test, define)
