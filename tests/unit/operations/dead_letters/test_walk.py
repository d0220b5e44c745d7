"""Walks over dead letters on `memory://`: reading, counting, deleting and replaying."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmq.contracts.broker import Broker, BrokerOptions, HeaderValue, Outgoing
from taskmq.errors import (
    BrokerUnavailable,
    InvalidOption,
    PartlyReplayed,
    PublishUnknown,
    QueueMissing,
    SendError,
    Unroutable,
)
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue
from taskmq.operations.dead_letters import (
    Choose,
    LetterGroup,
    Replay,
    Replayed,
    browse,
    group_letters,
    purge,
    replay,
    visit,
)
from taskmq.testing import FakeClock, FlakyBroker, Published
from taskmq.testing.broker_suite.case import peek
from taskmq_local import open_memory_broker
from tests.coroutines import run_by
from tests.unit.operations.dead_letters.letters import letter

_TIMEOUT = 5.0
_IMAGES = ("images", "images.p.high", "images.p.low", "images.dlq")
_OTHER = ("other", "other.p.high", "other.p.low", "other.dlq")
_NAMES = [f"job-{number}" for number in range(10)]


def _run(main: Callable[[Broker], Coroutine[Any, Any, None]], *, within: float = 30) -> None:
    async def run_with_timeout() -> None:
        async with asyncio.timeout(within), _open_memory() as broker:
            await main(broker)

    asyncio.run(run_with_timeout())


@asynccontextmanager
async def _open_memory() -> AsyncGenerator[Broker]:
    broker = open_memory_broker("memory://dead-letters", BrokerOptions())
    await broker.declare([WorkQueue("images"), WorkQueue("other")])
    try:
        yield broker
    finally:
        for queue in (*_IMAGES, *_OTHER, PARKING, UNROUTABLE):
            await broker.purge(queue)
        await broker.aclose()


async def _bury(
    broker: Broker,
    names: Sequence[str] = _NAMES,
    *,
    headers: Mapping[str, HeaderValue] | None = None,
    body: bytes | None = None,
    queue: str = "images.dlq",
    **fields: object,
) -> None:
    """Put dead letters into a queue like the worker does, one per name."""
    for name in names:
        envelope = {"v": 1, "id": name, "task": "resize", "args": [7], "attempt": 3, **fields}
        message = Outgoing(
            queue=queue,
            body=json.dumps(envelope).encode() if body is None else body,
            content_type="application/json",
            job_id=name,
            task="resize",
            headers=_HEADERS if headers is None else headers,
        )
        await broker.publish(message, timeout=_TIMEOUT)


_ENQUEUED = 1_699_999_000_000
_HEADERS: Mapping[str, HeaderValue] = {
    "x-taskmq-reason": "error",
    "x-taskmq-error": "ValueError: no",
    "x-taskmq-error-type": "ValueError",
    "x-taskmq-traceback": "Traceback: ...",
    "x-taskmq-origin": "images",
    "x-taskmq-started": _ENQUEUED + 5,
    "x-taskmq-died": 1_700_000_000_000,
    "x-taskmq-worker": "host:1",
    "x-taskmq-attempt": 3,
    "whose": "mine",
}


async def _names(broker: Broker, queue: str) -> list[str]:
    async with peek(broker, queue, limit=10_000) as deliveries:
        return [delivery.message_id or "" for delivery in deliveries]


async def _replay(
    broker: Broker, *, limit: int | None = None, choose: Choose | None = None, plan: Replay | None = None
) -> int:
    done = await replay(broker, "images", limit=limit, timeout=_TIMEOUT, choose=choose, plan=plan)
    return done.replayed


def _only(*names: str) -> Choose:
    return lambda letter: letter.job_id in names


# Reading


@run_by(_run)
async def test_browsing_shows_the_oldest_first_and_keeps_the_order(broker: Broker, /) -> None:
    await _bury(broker)

    first = await browse(broker, "images", limit=4)
    again = await browse(broker, "images", limit=100)

    assert [letter.job_id for letter in first] == _NAMES[:4]
    assert [letter.job_id for letter in again] == _NAMES
    assert await _names(broker, "images.dlq") == _NAMES


@run_by(_run)
async def test_a_letter_tells_what_happened(broker: Broker, /) -> None:
    await _bury(broker, ["job"], enqueued=_ENQUEUED, root="first")

    (letter,) = await browse(broker, "images", limit=1)

    assert (letter.job_id, letter.task, letter.queue, letter.attempt) == ("job", "resize", "images", 3)
    assert (letter.reason, letter.error, letter.traceback) == ("error", "ValueError: no", "Traceback: ...")
    assert (letter.died, letter.worker, letter.replayed) == (1_700_000_000_000, "host:1", 0)
    assert (letter.enqueued, letter.started, letter.error_type) == (_ENQUEUED, _ENQUEUED + 5, "ValueError")
    assert letter.root == "first"
    assert json.loads(letter.body)["args"] == [7]
    assert letter.content_type == "application/json"


@run_by(_run)
async def test_browsing_an_empty_dead_letter_queue_yields_nothing(broker: Broker, /) -> None:
    assert await browse(broker, "images", limit=10) == []


@run_by(_run)
async def test_the_dead_letters_of_a_missing_queue_are_an_error(broker: Broker, /) -> None:
    with pytest.raises(QueueMissing, match=r"nowhere\.dlq"):
        await browse(broker, "nowhere", limit=10)
    with pytest.raises(QueueMissing, match=r"nowhere\.dlq"):
        await replay(broker, "nowhere", timeout=_TIMEOUT)
    with pytest.raises(QueueMissing, match=r"nowhere\.dlq"):
        await purge(broker, "nowhere")
    with pytest.raises(InvalidOption, match="amq"):
        await visit(broker, "amq.x", lambda letter: None)


@run_by(_run)
async def test_an_unreadable_letter_is_shown_with_its_headers(broker: Broker, /) -> None:
    await _bury(broker, ["garbage"], body=b"\xff\x00 no task")

    (letter,) = await browse(broker, "images", limit=1)

    assert (letter.job_id, letter.task, letter.attempt) == ("garbage", "resize", 0)
    assert letter.body == b"\xff\x00 no task"


@run_by(_run)
async def test_a_letter_created_by_the_broker_has_no_reason_and_names_its_queue(broker: Broker, /) -> None:
    await _bury(broker, ["dropped"], headers={"x-first-death-reason": "maxlen"})

    (letter,) = await browse(broker, "images", limit=1)

    assert (letter.reason, letter.error, letter.traceback, letter.worker) == ("", "", "", "")
    assert (letter.queue, letter.died, letter.replayed) == ("images", None, 0)
    assert (letter.started, letter.enqueued, letter.error_type) == (None, None, "")


@run_by(_run)
async def test_taskmq_headers_of_other_types_are_read_as_absent(broker: Broker, /) -> None:
    odd: dict[str, HeaderValue] = {"x-taskmq-reason": 7, "x-taskmq-died": "then", "x-taskmq-replayed": "twice"}
    await _bury(broker, ["odd"], headers={**odd, "x-taskmq-origin": 1})

    (letter,) = await browse(broker, "images", limit=1)

    assert (letter.reason, letter.died, letter.replayed, letter.queue) == ("", None, 0, "images")


@run_by(_run)
async def test_any_number_of_letters_is_visited_in_order(broker: Broker, /) -> None:
    names = [f"{number:04}" for number in range(1_203)]

    await _bury(broker, names)
    seen: list[str] = []
    steps: list[tuple[int, int]] = []

    count = await visit(
        broker,
        "images",
        lambda letter: seen.append(letter.job_id),
        progress=lambda read, all_: steps.append((read, all_)),
    )

    assert (count, seen) == (1_203, names)
    assert steps == [(500, 1_203), (1_000, 1_203), (1_203, 1_203)]
    assert await _names(broker, "images.dlq") == names


@run_by(_run)
async def test_the_expected_number_of_letters_is_the_limit_if_all_are_chosen(broker: Broker, /) -> None:
    await _bury(broker, [f"{number:04}" for number in range(8)])
    steps: list[tuple[int, int]] = []

    def note(read: int, expected: int) -> None:
        steps.append((read, expected))

    await visit(broker, "images", lambda _: None, limit=6, progress=note)
    await visit(broker, "images", lambda _: None, limit=9, progress=note)
    await visit(broker, "images", lambda _: None, limit=6, choose=lambda _: True, progress=note)

    assert steps == [(6, 6), (8, 8), (8, 8)]


@run_by(_run)
async def test_a_visit_ends_after_enough_selected_letters(broker: Broker, /) -> None:
    names = [f"{number:04}" for number in range(1_100)]

    await _bury(broker, names)

    chosen = await browse(broker, "images", limit=3, choose=lambda letter: letter.job_id.endswith("99"))

    assert [letter.job_id for letter in chosen] == ["0099", "0199", "0299"]
    assert len(await browse(broker, "images", limit=10, choose=_only("1050"))) == 1
    assert await browse(broker, "images", limit=10, choose=_only("1050"), depth=1_050) == []
    assert await _names(broker, "images.dlq") == names


@run_by(_run)
async def test_letters_keep_their_order_if_their_visitor_fails(broker: Broker, /) -> None:
    await _bury(broker)

    with pytest.raises(ZeroDivisionError):
        await visit(broker, "images", lambda letter: 1 // (letter.job_id != "job-4"))

    assert await _names(broker, "images.dlq") == _NAMES


@run_by(_run)
async def test_the_error_type_of_an_old_letter_is_read_from_its_error(broker: Broker, /) -> None:
    await _bury(broker, ["a"], headers={"x-taskmq-error": "shop.errors.TooDark: no: light"})
    await _bury(broker, ["b"], headers={"x-taskmq-error": "no light at all"})

    dark, odd = await browse(broker, "images", limit=2)

    assert (dark.error_type, odd.error_type) == ("shop.errors.TooDark", "")


@pytest.mark.parametrize("header", ["x-taskmq-origin", "x-taskmq-queue"])
@run_by(_run)
async def test_an_unroutable_message_names_its_destination(broker: Broker, /, header: str) -> None:
    await _bury(broker, ["known"], queue=UNROUTABLE, headers={header: "images.p.low"})
    await _bury(broker, ["unknown"], queue=UNROUTABLE, headers={})

    known, unknown = await browse(broker, UNROUTABLE, limit=2)

    assert (known.queue, known.reason) == ("images.p.low", "unroutable")
    assert (unknown.queue, unknown.reason) == ("", "unroutable")


# Counting failures


@run_by(_run)
async def test_letters_of_one_failure_are_one_group(broker: Broker, /) -> None:
    def dies(error: str, died: int) -> Mapping[str, HeaderValue]:
        kind = error.partition(":")[0]
        return {**_HEADERS, "x-taskmq-error": error, "x-taskmq-error-type": kind, "x-taskmq-died": died}

    await _bury(broker, ["a"], headers=dies("OSError: disk 1", 50))
    await _bury(broker, ["b"], headers=dies("KeyError: 'x'", 20))
    await _bury(broker, ["c"], headers=dies("KeyError: 'y'", 10))
    await _bury(broker, ["d"], headers=dies("KeyError: 'z'", 30))

    keys, disk = await group_letters(broker, "images")

    assert keys == LetterGroup(
        fingerprint=keys.fingerprint,
        count=3,
        jobs=3,
        tenants=frozenset({""}),
        task="resize",
        reason="error",
        error_type="KeyError",
        error="KeyError: 'x'",
        first=10,
        last=30,
        sample="b",
    )
    assert (disk.count, disk.first, disk.last, disk.sample) == (1, 50, 50, "a")
    chosen = await browse(broker, "images", limit=9, choose=lambda letter: letter.fingerprint == keys.fingerprint)
    assert [letter.job_id for letter in chosen] == ["b", "c", "d"]


@run_by(_run)
async def test_letters_without_a_time_of_death_are_counted_too(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b"], headers={})

    (found,) = await group_letters(broker, "images", choose=_only("a", "b"))

    assert (found.count, found.first, found.last, found.reason) == (2, None, None, "")


# Deleting


@run_by(_run)
async def test_deleting_selected_letters_keeps_the_order_of_the_others(broker: Broker, /) -> None:
    await _bury(broker)

    assert await purge(broker, "images", choose=_only("job-7", "job-2", "job-3")) == 3
    assert await purge(broker, "images", limit=1) == 1
    assert await purge(broker, "images", depth=2, choose=_only("job-1", "job-9")) == 1
    assert await purge(broker, "images", limit=1, choose=_only("job-5", "job-6")) == 1

    assert await _names(broker, "images.dlq") == ["job-4", "job-6", "job-8", "job-9"]


@run_by(_run)
async def test_deleting_all_letters_does_not_touch_other_queues(broker: Broker, /) -> None:
    await _bury(broker)
    await _bury(broker, ["waiting"], queue="images")

    assert await purge(broker, "images") == 10

    assert await _names(broker, "images.dlq") == []
    assert await _names(broker, "images") == ["waiting"]


# Replaying


@run_by(_run)
async def test_a_replay_keeps_the_order_and_empties_the_queue(broker: Broker, /) -> None:
    await _bury(broker)

    assert await _replay(broker) == 10

    assert await _names(broker, "images") == _NAMES
    assert await _names(broker, "images.dlq") == []


@run_by(_run)
async def test_a_replayed_job_restarts_with_all_other_fields_unchanged(broker: Broker, /) -> None:
    await _bury(broker, ["job"], eta=1_700_000_000_000, root="first", mine={"kept": [1]})

    await _replay(broker)

    async with peek(broker, "images", limit=1) as (copy,):
        body = json.loads(copy.body)
        headers = dict(copy.headers)
    assert body == {
        "v": 1, "id": "job", "task": "resize", "args": [7], "attempt": 1, "root": "first", "mine": {"kept": [1]}
    }  # fmt: skip
    assert (copy.message_id, copy.task, copy.content_type) == ("job", "resize", "application/json")
    assert headers["whose"] == "mine"
    assert headers["x-taskmq-replayed"] == 1
    assert not {"x-taskmq-reason", "x-taskmq-error", "x-taskmq-traceback", "x-taskmq-died"} & set(headers)


@run_by(_run)
async def test_a_letter_returns_to_its_priority_class(broker: Broker, /) -> None:
    await _bury(broker, ["job"], headers={**_HEADERS, "x-taskmq-origin": "images.p.high"})

    await _replay(broker)

    assert await _names(broker, "images.p.high") == ["job"]


@run_by(_run)
async def test_replays_of_a_job_are_counted(broker: Broker, /) -> None:
    await _bury(broker, ["job"], headers={**_HEADERS, "x-taskmq-replayed": 4})

    await _replay(broker, plan=Replay(max_replays=None))

    async with peek(broker, "images", limit=1) as (copy,):
        assert copy.headers["x-taskmq-replayed"] == 5


@run_by(_run)
async def test_an_unreadable_letter_is_replayed_byte_for_byte(broker: Broker, /) -> None:
    await _bury(broker, ["garbage"], body=b"\xff\x00 no task", headers={})

    assert await _replay(broker) == 1

    async with peek(broker, "images", limit=1) as (copy,):
        assert (copy.body, copy.message_id) == (b"\xff\x00 no task", "garbage")


@run_by(_run)
async def test_a_replay_is_limited_to_the_requested_number_of_letters(broker: Broker, /) -> None:
    await _bury(broker)

    assert await _replay(broker, limit=3) == 3

    assert await _names(broker, "images") == _NAMES[:3]
    assert await _names(broker, "images.dlq") == _NAMES[3:]


@run_by(_run)
async def test_one_of_several_letters_of_a_job_is_sent_and_the_others_are_dropped(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b", "a", "c", "b", "a"])

    done = await replay(broker, "images", timeout=_TIMEOUT)

    assert (done.replayed, done.dropped) == (3, 3)
    assert await _names(broker, "images") == ["a", "b", "c"]
    assert await _names(broker, "images.dlq") == []


@run_by(_run)
async def test_all_letters_of_a_job_are_sent_on_request(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b", "a"])

    done = await replay(broker, "images", timeout=_TIMEOUT, plan=Replay(duplicates=True))

    assert (done.replayed, done.dropped) == (3, 0)
    assert await _names(broker, "images") == ["a", "b", "a"]


@run_by(_run)
async def test_letters_without_an_id_or_of_other_tasks_are_separate_jobs(broker: Broker, /) -> None:
    await _bury(broker, ["", "", "a"])
    await _bury(broker, ["a"], task="shrink")

    done = await replay(broker, "images", timeout=_TIMEOUT)

    assert (done.replayed, done.dropped) == (4, 0)


@run_by(_run)
async def test_a_limit_counts_jobs_and_leaves_the_remaining_letters(broker: Broker, /) -> None:
    await _bury(broker, ["a", "a", "b", "a", "c", "b"])

    done = await replay(broker, "images", timeout=_TIMEOUT, limit=2)

    assert (done.replayed, done.dropped) == (2, 1)
    assert await _names(broker, "images") == ["a", "b"]
    assert await _names(broker, "images.dlq") == ["a", "c", "b"]


@run_by(_run)
async def test_the_other_letters_of_a_job_stay_if_its_copy_was_not_confirmed(broker: Broker, /) -> None:
    flaky = FlakyBroker(broker)
    await _bury(broker, ["a", "b", "a", "b"])
    flaky.fail_publishes(1, PublishUnknown("no confirm"))

    with pytest.raises(PartlyReplayed):
        await _replay(flaky)

    assert await _names(broker, "images") == ["b"]
    assert await _names(broker, "images.dlq") == ["a", "a"]


@run_by(_run)
async def test_a_group_counts_the_jobs_of_its_letters(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b", "a"])

    (found,) = await group_letters(broker, "images")

    assert (found.count, found.jobs) == (3, 2)


@run_by(_run)
async def test_replaying_nothing_is_not_an_error(broker: Broker, /) -> None:
    assert await _replay(broker) == 0
    assert await _replay(broker, choose=lambda letter: True) == 0


@run_by(_run)
async def test_more_letters_than_fit_into_one_window_are_replayed_in_order(broker: Broker, /) -> None:
    names = [f"{number:04}" for number in range(1_203)]

    await _bury(broker, names)

    assert await _replay(broker) == 1_203

    assert await _names(broker, "images") == names
    assert await _names(broker, "images.dlq") == []


@run_by(_run)
async def test_only_selected_letters_are_replayed_and_the_others_keep_their_order(broker: Broker, /) -> None:
    await _bury(broker)

    count = await _replay(broker, choose=_only("job-7", "job-2"))

    assert count == 2
    assert await _names(broker, "images") == ["job-2", "job-7"]
    assert await _names(broker, "images.dlq") == [name for name in _NAMES if name not in {"job-2", "job-7"}]


@run_by(_run)
async def test_a_selection_sees_at_most_the_initial_number_of_letters(broker: Broker, /) -> None:
    await _bury(broker)

    done = await replay(broker, "images", timeout=_TIMEOUT, depth=5, choose=_only("job-4", "job-7"))

    assert done == Replayed(replayed=1)
    assert await _names(broker, "images") == ["job-4"]


@run_by(_run)
async def test_letters_that_arrive_during_a_replay_wait_for_the_next_one(broker: Broker, /) -> None:
    class DiesAgain(FlakyBroker):
        """A broker whose jobs die again before the replay has continued."""

        def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
            return asyncio.ensure_future(self._publish_and_bury(message, timeout))

        async def _publish_and_bury(self, message: Outgoing, timeout: float) -> None:
            await super().publish(message, timeout=timeout)
            await _bury(self.inner, [message.job_id])

        def __init__(self, inner: Broker) -> None:
            super().__init__(inner)
            self.inner = inner

    names = [f"{number:04}" for number in range(600)]

    await _bury(broker, names)

    assert await _replay(DiesAgain(broker)) == 600

    assert await _names(broker, "images.dlq") == names


@run_by(_run)
async def test_a_replay_can_continue_the_count_of_attempts(broker: Broker, /) -> None:
    await _bury(broker, ["job"], eta=1_700_000_000_000)

    await _replay(broker, plan=Replay(keep_attempts=True))

    async with peek(broker, "images", limit=1) as (copy,):
        body = json.loads(copy.body)
    assert (body["attempt"], "eta" in body) == (3, False)


@pytest.mark.parametrize(
    ("origin", "target"),
    [("images", "other"), ("images.p.high", "other.p.high"), ("images.p.low", "other.p.low"), ("", "other")],
)
@run_by(_run)
async def test_letters_can_be_sent_to_another_queue_in_their_priority_class(
    broker: Broker, /, origin: str, target: str
) -> None:
    headers = {name: value for name, value in _HEADERS.items() if name != "x-taskmq-origin"}
    await _bury(
        broker, ["job"], queue=PARKING, headers={**headers, **({"x-taskmq-origin": origin} if origin else {})}
    )

    done = await replay(broker, PARKING, timeout=_TIMEOUT, plan=Replay(to="other"))

    assert done == Replayed(replayed=1)
    assert await _names(broker, target) == ["job"]


@pytest.mark.parametrize(
    ("origin", "described", "target"),
    [
        ("images.lane07", WorkQueue("images", lanes=4), "images"),
        ("images.lane03", WorkQueue("images", lanes=4), "images.lane03"),
        ("images.p.low", WorkQueue("images", lanes=4), "images.p.low"),
        ("images.p.high", WorkQueue("images", lanes=4), "images"),
        ("images.p.high", WorkQueue("images", priorities="native"), "images"),
        ("images.lane00", WorkQueue("images"), "images"),
        ("images.s01", WorkQueue("images", ordered=2), "images.s01"),
        ("images", WorkQueue("images", ordered=2), "images"),
        ("images.lane07", WorkQueue("other", lanes=4), "images.lane07"),
    ],
)
def test_letters_of_a_deleted_lane_or_class_go_to_the_queue_itself(
    origin: str, described: WorkQueue, target: str
) -> None:
    assert Replay(queues=[described]).target(letter(queue=origin)) == target


def test_letters_for_another_queue_are_placed_as_that_queue_expects() -> None:
    plan = Replay(to="other", queues=[WorkQueue("other", lanes=4)])

    assert plan.target(letter(queue="images.p.high")) == "other"


@run_by(_run)
async def test_letters_replayed_too_often_stay_and_are_counted(broker: Broker, /) -> None:
    for number in range(6):
        await _bury(broker, [f"job-{number}"], headers={**_HEADERS, "x-taskmq-replayed": number})

    done = await replay(broker, "images", timeout=_TIMEOUT)

    assert done == Replayed(replayed=3, too_often=3)
    assert await _names(broker, "images.dlq") == ["job-3", "job-4", "job-5"]
    assert await replay(broker, "images", timeout=_TIMEOUT, plan=Replay(max_replays=5)) == Replayed(
        replayed=2, too_often=1
    )


@run_by(_run)
async def test_letters_of_unknown_origin_stay_and_are_counted(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b"], queue=UNROUTABLE, headers={})
    await _bury(broker, ["c"], queue=UNROUTABLE, headers={"x-taskmq-origin": "images"})

    done = await replay(broker, UNROUTABLE, timeout=_TIMEOUT)

    assert done == Replayed(replayed=1, no_destination=2)
    assert await _names(broker, "images") == ["c"]
    assert await _names(broker, UNROUTABLE) == ["a", "b"]


@run_by(_run)
async def test_the_copy_keeps_its_first_send_time_and_its_parents(broker: Broker, /) -> None:
    flaky = FlakyBroker(broker)
    await _bury(broker, ["job"], enqueued=_ENQUEUED, root="first")

    await _replay(flaky)

    (published,) = [entry for entry in flaky.journal if isinstance(entry, Published)]
    assert (published.message.enqueued, published.message.root) == (_ENQUEUED, "first")


@run_by(_run)
async def test_a_rate_is_respected(broker: Broker, /) -> None:
    clock = FakeClock()
    await _bury(broker)

    running = asyncio.create_task(
        replay(broker, "images", timeout=_TIMEOUT, plan=Replay(rate=8), clock=clock, limit=6)
    )
    counts: list[int] = []
    for _ in range(2):
        await clock.wait_for_sleepers()
        counts.append((await broker.stats(["images"]))[0].ready)
        clock.advance("250ms")
    await running

    assert counts == [2, 4]
    assert await _names(broker, "images") == _NAMES[:6]


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_of_zero_is_refused(rate: float) -> None:
    with pytest.raises(InvalidOption, match="rate"):
        Replay(rate=rate)


def test_a_target_that_is_not_a_queue_is_refused() -> None:
    with pytest.raises(InvalidOption, match="amq"):
        Replay(to="amq.x")


# Failures


@run_by(_run)
async def test_each_letter_is_acked_only_after_its_copy_is_confirmed(broker: Broker, /) -> None:
    flaky = FlakyBroker(broker)
    await _bury(broker, ["a", "b"])

    await _replay(flaky)

    assert flaky.kinds().count("Acked") == 2
    for name in ("a", "b"):
        mine = [
            type(entry).__name__
            for entry in flaky.journal
            if name in (getattr(entry, "message_id", None), getattr(getattr(entry, "message", None), "job_id", None))
        ]
        assert mine == ["Published", "Confirmed", "Acked"]


@run_by(_run)
async def test_an_unreturnable_letter_stays_and_the_others_are_replayed_once(broker: Broker, /) -> None:
    await _bury(broker, ["a", "b"])
    await _bury(broker, ["lost"], headers={**_HEADERS, "x-taskmq-origin": "gone"})
    await _bury(broker, ["c", "d"])

    for replayed in (4, 0):
        with pytest.raises(PartlyReplayed, match="gone") as caught:
            await _replay(broker)
        assert isinstance(caught.value.failure, Unroutable)
        assert (caught.value.failed, caught.value.replayed) == (1, replayed)

    assert await _names(broker, "images") == ["a", "b", "c", "d"]
    assert await _names(broker, "images.dlq") == ["lost"]


@pytest.mark.parametrize("error", [BrokerUnavailable("gone"), PublishUnknown("no confirm")], ids=repr)
@run_by(_run)
async def test_letters_with_failed_copies_keep_their_order(broker: Broker, /, error: SendError) -> None:
    flaky = FlakyBroker(broker)
    await _bury(broker)
    flaky.fail_publishes(3, error)

    with pytest.raises(PartlyReplayed) as caught:
        await _replay(flaky)
    assert caught.value.failure is error

    assert await _names(broker, "images") == _NAMES[3:]
    assert await _names(broker, "images.dlq") == _NAMES[:3]


@run_by(_run)
async def test_a_lost_confirm_keeps_the_letter_even_if_its_copy_may_exist(broker: Broker, /) -> None:
    flaky = FlakyBroker(broker)
    await _bury(broker, ["a", "b"])
    flaky.lose_confirms(1)

    with pytest.raises(PartlyReplayed) as caught:
        await _replay(flaky)
    assert isinstance(caught.value.failure, PublishUnknown)

    assert await _names(broker, "images") == ["a", "b"]
    assert await _names(broker, "images.dlq") == ["a"]


@run_by(_run)
async def test_no_window_starts_after_one_with_a_failure(broker: Broker, /) -> None:
    names = [f"{number:04}" for number in range(700)]

    flaky = FlakyBroker(broker)
    await _bury(broker, names)
    flaky.fail_publishes(1, BrokerUnavailable("gone"))

    with pytest.raises(PartlyReplayed, match="gone") as caught:
        await _replay(flaky)
    assert (caught.value.failed, caught.value.replayed) == (1, 499)

    assert await _names(broker, "images") == names[1:500]
    assert await _names(broker, "images.dlq") == [names[0], *names[500:]]
