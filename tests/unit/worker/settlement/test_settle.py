"""Contents of copies, dead letters and records."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Delivery, HeaderValue
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import InvalidArguments, Reject, WorkerLost
from taskmq.model.envelope import JSON, MSGPACK, decode_envelope
from taskmq.model.outcome import Cancelled, Dead, Outcome, Parked, Retried, Snoozed, Succeeded
from taskmq.model.states import JobState
from taskmq.model.units import instant_text
from taskmq.testing import Published
from taskmq.testing.broker_suite.case import peek
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.settle import Settler
from tests.unit.worker.staged import FakeDelivery, StagedApp, open_staged
from tests.virtual_time import run

BODY = {
    "v": 1,
    "id": "job-1",
    "task": "job",
    "args": [1, "ä"],
    "kwargs": {"k": None},
    "attempt": 3,
    "enqueued": 1_699_999_999_000,
    "root": "root-1",
    "x-future": {"of": ["another", "version"]},
}


def _settle_outcome(
    outcome: Outcome,
    *,
    body: bytes | None = None,
    content_type: str = JSON,
    queue: str = "work",
    headers: Mapping[str, HeaderValue] | None = None,
    message_id: str = "job-1",
    task: str = "job",
    with_state: bool = True,
    result_limit: int = 2**20,
    look: Callable[[StagedApp], object] | None = None,
) -> tuple[list[Delivery], ResultRecord | None, StagedApp]:
    """Settle one delivery; return the published message and the record."""
    seen: list[tuple[list[Delivery], ResultRecord | None, StagedApp]] = []

    async def main() -> None:
        with open_staged(with_state=with_state) as app:
            _define(app)
            data = json.dumps(BODY).encode() if body is None else body
            await app.put(data, queue=queue, headers=headers, job_id=message_id, content_type=content_type)
            settler = Settler(app, worker="w1", result_limit=result_limit)
            async with peek(app.flaky, queue, limit=1) as (delivery,):
                if isinstance(outcome, Parked):
                    await settler.park(delivery, outcome)
                else:
                    envelope = decode_envelope(data, content_type)
                    attempt = Attempt(delivery, envelope, app.tasks[task], envelope.id or message_id, started=17)
                    await settler.settle(attempt, outcome)
            record = await app.record()
            app.fake_clock.advance("30d")
            copies = [copy for name in (queue, "work.dlq", "taskmq.parking") for copy in await app.messages(name)]
            seen.append((copies, record, app))
            await app.aclose()

    run(main())
    return seen[0]


def _define(app: TaskMQ) -> None:
    @app.task(name="job")
    async def job() -> object: ...

    @app.task(name="share")
    async def share() -> float | None: ...

    @app.task(name="mute", result=False)
    async def mute() -> None: ...


def _due(app: StagedApp) -> int | None:
    (message,) = [entry.message for entry in app.flaky.journal if isinstance(entry, Published)]
    return message.due


NOW = 1_700_000_000_000


def test_a_record_about_a_refused_job_has_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    _settle_outcome(Dead("invalid_arguments", InvalidArguments("no such argument")))

    (record,) = [record for record in caplog.records if "dead" in record.message]
    fields = {name: getattr(record, name) for name in ("job_id", "task", "attempt", "queue")}
    assert fields == {"job_id": "job-1", "task": "job", "attempt": 3, "queue": "work"}


def test_a_retry_is_the_same_message_with_the_next_attempt_and_its_time() -> None:
    (copy,), _, app = _settle_outcome(Retried(timedelta(seconds=1), ValueError("no")))

    assert json.loads(copy.body) == {**BODY, "attempt": 4, "eta": NOW + 1000}
    assert _due(app) == NOW + 1000
    assert (copy.queue, copy.message_id, copy.task, copy.content_type) == ("work", "job-1", "job", JSON)
    assert copy.headers == {"x-taskmq-attempt": 4, "x-taskmq-error": "ValueError: no"}


def test_the_console_shows_a_retry_with_the_first_time_and_origin_of_its_job() -> None:
    _, _, app = _settle_outcome(Retried(timedelta(seconds=1), ValueError("no")))

    (message,) = [entry.message for entry in app.flaky.journal if isinstance(entry, Published)]
    assert (message.enqueued, message.root) == (1_699_999_999_000, "root-1")


def test_a_retry_without_a_delay_is_due_at_once() -> None:
    (copy,), _, app = _settle_outcome(Retried(timedelta(), ValueError("no")))

    assert _due(app) == NOW
    assert decode_envelope(copy.body).eta == NOW


@pytest.mark.parametrize(
    ("wanted", "coarse"), [(0.001, 0.125), (1, 1), (1.01, 1.25), (10.1, 12), (299, 320), (300, 320)]
)
def test_retry_delays_are_rounded_up_to_three_significant_bits(wanted: float, coarse: float) -> None:
    _, _, app = _settle_outcome(Retried(timedelta(seconds=wanted), ValueError("no")))

    assert _due(app) == NOW + coarse * 1000


def test_a_snooze_keeps_the_attempt_and_is_not_rounded() -> None:
    (copy,), _, app = _settle_outcome(Snoozed(timedelta(seconds=10.123)))

    assert json.loads(copy.body) == {**BODY, "eta": NOW + 10_123}
    assert _due(app) == NOW + 10_123
    assert copy.headers == {}


def test_a_copy_in_messagepack_stays_messagepack() -> None:
    body = msgspec.msgpack.encode(BODY)

    (copy,), _, _ = _settle_outcome(Retried(timedelta(seconds=1), ValueError("no")), body=body, content_type=MSGPACK)

    assert copy.content_type == MSGPACK
    assert msgspec.msgpack.decode(copy.body) == {**BODY, "attempt": 4, "eta": NOW + 1000}


def test_a_copy_keeps_its_priority_class_and_a_dead_letter_goes_to_the_queue_itself() -> None:
    (copy,), _, _ = _settle_outcome(Retried(timedelta(seconds=1), ValueError("no")), queue="work.p.high")
    (letter,), _, _ = _settle_outcome(Dead("error", ValueError("no")), queue="work.p.high")

    assert copy.queue == "work.p.high"
    assert letter.queue == "work.dlq"
    assert letter.headers["x-taskmq-origin"] == "work.p.high"


def test_a_message_without_an_id_gets_the_one_under_which_it_ran() -> None:
    body = b'{"task":"job"}'

    (copy,), _, _ = _settle_outcome(
        Retried(timedelta(seconds=1), ValueError("no")), body=body, message_id="from-the-broker"
    )

    assert decode_envelope(copy.body).id == "from-the-broker"
    assert copy.message_id == "from-the-broker"


@pytest.mark.parametrize(
    "outcome",
    [Retried(timedelta(seconds=1), ValueError("no")), Snoozed(timedelta(seconds=1)), Dead("error", ValueError("no"))],
    ids=lambda outcome: type(outcome).__name__,
)
def test_copies_carry_the_headers_of_the_sender_and_no_old_ones_of_taskmq(outcome: Outcome) -> None:
    headers: dict[str, HeaderValue] = {
        "shop": "paris",
        "size": 3,
        "x-taskmq-unknown": 2,
        "x-taskmq-reason": "replayed",
        "x-taskmq-error": "an old one",
    }

    (copy,), _, _ = _settle_outcome(outcome, headers=headers)

    assert copy.headers["shop"] == "paris"
    assert copy.headers["size"] == 3
    assert "x-taskmq-unknown" not in copy.headers
    assert copy.headers.get("x-taskmq-reason") != "replayed"
    assert copy.headers.get("x-taskmq-error") != "an old one"


def test_a_dead_letter_records_cause_task_time_worker_and_origin() -> None:
    try:
        raise KeyError("missing")
    except KeyError as error:
        dead = Dead("error", error)

    (letter,), _, _ = _settle_outcome(dead)

    trace = letter.headers["x-taskmq-traceback"]
    assert letter.headers == {
        "x-taskmq-reason": "error",
        "x-taskmq-error": "KeyError: 'missing'",
        "x-taskmq-error-type": "KeyError",
        "x-taskmq-traceback": trace,
        "x-taskmq-attempt": 3,
        "x-taskmq-origin": "work",
        "x-taskmq-started": "1970-01-01T00:00:00.017Z",
        "x-taskmq-died": instant_text(NOW),
        "x-taskmq-worker": "w1",
    }
    assert isinstance(trace, str)
    assert 'raise KeyError("missing")' in trace
    assert json.loads(letter.body) == BODY


@pytest.mark.parametrize(
    "outcome",
    [
        Retried(timedelta(seconds=1), ValueError("no")),
        Snoozed(timedelta(seconds=1)),
        Dead("error", ValueError("no")),
        Parked("nobody knows it"),
        Parked("not here yet", timedelta(seconds=1)),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_the_number_of_replays_stays_on_all_copies_of_a_job(outcome: Outcome) -> None:
    (copy,), _, _ = _settle_outcome(outcome, headers={"x-taskmq-replayed": 2, "x-taskmq-error": "old"})

    assert copy.headers["x-taskmq-replayed"] == 2
    assert copy.headers.get("x-taskmq-error") != "old"


@pytest.mark.parametrize("reason", ["error", "rejected", "invalid_arguments", "timeout", "worker_lost"])
def test_a_dead_letter_carries_the_reason_of_the_outcome(reason: str) -> None:
    (letter,), _, _ = _settle_outcome(Dead(reason, Reject("no")))  # type: ignore[arg-type]

    assert letter.headers["x-taskmq-reason"] == reason


def test_a_past_eta_is_removed_from_a_dead_letter() -> None:
    body = json.dumps({**BODY, "eta": NOW - 5}).encode()

    (letter,), _, _ = _settle_outcome(Dead("error", ValueError("no")), body=body)

    assert json.loads(letter.body) == BODY


def test_long_errors_are_truncated_to_fit_short_headers() -> None:
    (letter,), record, _ = _settle_outcome(Dead("error", ValueError("x" * 100_000)))

    headers = {name: len(str(value)) for name, value in letter.headers.items()}
    assert headers["x-taskmq-error"] == 500
    assert headers["x-taskmq-traceback"] == 16_000
    assert sum(headers.values()) < 20_000
    assert record is not None
    assert record.error is not None
    assert len(record.error.message) < 20_000


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say what happened")


@pytest.mark.parametrize("make", [lambda e: Dead("error", e), lambda e: Retried(timedelta(seconds=1), e)])
def test_an_unprintable_error_is_settled_normally(make: Callable[[BaseException], Outcome]) -> None:
    (copy,), _, app = _settle_outcome(make(_Unprintable()))

    assert "_Unprintable" in str(copy.headers["x-taskmq-error"])
    assert app.story()[-1] == "acked work"


@pytest.mark.parametrize("make", [lambda e: Dead("error", e), lambda e: Retried(timedelta(seconds=1), e)])
def test_an_unencodable_error_is_escaped(
    make: Callable[[BaseException], Outcome],
) -> None:
    (copy,), record, _ = _settle_outcome(make(ValueError("a \ud800 file name")))

    for value in copy.headers.values():
        assert str(value).encode()
    assert record is None or msgspec.json.encode(record)


def test_an_exception_of_a_module_is_named_with_it() -> None:
    (letter,), record, _ = _settle_outcome(Dead("worker_lost", WorkerLost("killed")))

    assert letter.headers["x-taskmq-error-type"] == "taskmq.errors.WorkerLost"
    assert record is not None
    assert record.error is not None
    assert record.error.type_name == "taskmq.errors.WorkerLost"


def test_a_result_record_contains_task_and_time_and_worker() -> None:
    _, record, _ = _settle_outcome(Succeeded({"a": 1}))

    assert record == ResultRecord(
        job_id="job-1",
        task="job",
        state=JobState.SUCCEEDED,
        attempt=3,
        content_type=JSON,
        value=b'{"a":1}',
        started=17,
        finished=NOW,
        worker="w1",
    )


def test_a_result_is_stored_in_the_encoding_of_the_message() -> None:
    _, record, _ = _settle_outcome(Succeeded([1]), body=msgspec.msgpack.encode(BODY), content_type=MSGPACK)

    assert record is not None
    assert (record.content_type, record.value) == (MSGPACK, msgspec.msgpack.encode([1]))


def test_the_record_of_a_dead_job_has_the_error_and_a_cancelled_one_the_reason() -> None:
    _, dead, _ = _settle_outcome(Dead("error", ValueError("no")))
    _, cancelled, _ = _settle_outcome(Cancelled("expired before it started"))

    assert dead is not None
    assert dead.error is not None
    assert (dead.state, dead.error.type_name, dead.error.message) == (JobState.FAILED, "ValueError", "no")
    assert cancelled is not None
    assert cancelled.error is not None
    assert (cancelled.state, cancelled.error.message) == (JobState.CANCELLED, "expired before it started")


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(1), Dead("error", ValueError("no")), Cancelled("no")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_task_without_results_or_without_a_state_stores_nothing(outcome: Outcome) -> None:
    for task, with_state in (("mute", True), ("job", False)):
        _, record, app = _settle_outcome(outcome, task=task, with_state=with_state)

        assert record is None
        assert app.points.names.count("put") == 0
        assert app.story()[-1] == "acked work"


def test_a_value_that_is_not_stored_may_be_unencodable() -> None:
    for task, with_state in (("mute", True), ("job", False)):
        copies, _, app = _settle_outcome(Succeeded(object()), task=task, with_state=with_state)

        assert copies == []
        assert app.story() == ["acked work"]


class _Model:
    def model_dump(self, *, mode: str, **options: object) -> object:
        raise LookupError(f"no {mode} today, {options}")

    def model_validate_json(self) -> None: ...


@pytest.mark.parametrize(
    "value",
    [object(), {1, object()}, float, "\ud800", _Model()],
    ids=["object", "set", "type", "surrogate", "model"],
)
def test_an_unencodable_value_is_a_dead_letter_with_the_reason_result(value: object) -> None:
    (letter,), record, _ = _settle_outcome(Succeeded(value))

    assert letter.queue == "work.dlq"
    assert letter.headers["x-taskmq-reason"] == "result"
    assert letter.headers["x-taskmq-error-type"] == "taskmq.errors.EncodeError"
    assert record is not None
    assert record.state is JobState.FAILED


def test_a_value_beyond_the_limit_is_a_dead_letter_that_names_both_sizes() -> None:
    (letter,), record, _ = _settle_outcome(Succeeded("x" * 2000), result_limit=1000)

    assert letter.headers["x-taskmq-reason"] == "result"
    assert str(letter.headers["x-taskmq-error"]).startswith(
        "taskmq.errors.ResultTooLarge: the result of task job has 2,002 bytes, the limit is 1,000: "
    )
    assert record is not None
    assert record.state is JobState.FAILED
    assert _settle_outcome(Succeeded("x" * 998), result_limit=1000)[0] == []


class _TakenAway(FakeDelivery):
    """A delivery with a lost connection, noticed after some loop iterations."""

    turns = 2

    @property
    def revoked(self) -> bool:
        self.turns -= 1
        return self.turns < 0


@pytest.mark.parametrize(
    "outcome",
    [
        Retried(timedelta(0), ValueError("no")),
        Snoozed(timedelta(1)),
        Dead("error", ValueError("no")),
        Cancelled("no"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_late_outcome_makes_no_copy_and_no_record(outcome: Outcome) -> None:
    with open_staged() as app:
        _define(app)
        data = json.dumps(BODY).encode()
        await app.put(data, queue="work", headers=None, job_id="job-1", content_type=JSON)
        delivery = _TakenAway(data)
        envelope = decode_envelope(data, JSON)
        attempt = Attempt(delivery, envelope, app.tasks["job"], "job-1", started=17)

        assert not await Settler(app, worker="w1").settle(attempt, outcome)

        assert await app.record() is None
        app.fake_clock.advance("30d")
        assert [len(await app.messages(name)) for name in ("work", "work.dlq")] == [1, 0]
        assert delivery.settled is None
        await app.aclose()


GARBAGE = b"\x00 not a task \xff"


def test_a_parked_message_is_verbatim_and_records_cause_origin_time_and_worker() -> None:
    (parked,), _, app = _settle_outcome(
        Parked("the body is no task"), body=GARBAGE, content_type="text/plain", headers={"shop": "paris"}
    )

    assert (parked.queue, parked.body, parked.content_type) == ("taskmq.parking", GARBAGE, "text/plain")
    assert (parked.message_id, parked.task) == ("job-1", "job")
    assert parked.headers == {
        "shop": "paris",
        "x-taskmq-reason": "the body is no task",
        "x-taskmq-origin": "work",
        "x-taskmq-died": instant_text(NOW),
        "x-taskmq-worker": "w1",
    }
    assert app.story() == ["confirmed taskmq.parking", "acked work"]


def test_a_requeued_message_is_verbatim_and_counted_and_due_later() -> None:
    (once,), _, app = _settle_outcome(Parked("unknown", delay=timedelta(seconds=5)), body=GARBAGE, queue="work.p.low")
    (again,), _, _ = _settle_outcome(
        Parked("unknown", delay=timedelta(seconds=5)), body=GARBAGE, headers={"x-taskmq-unknown": 4, "shop": "paris"}
    )

    assert (once.queue, once.body, once.headers) == ("work.p.low", GARBAGE, {"x-taskmq-unknown": 1})
    assert _due(app) == NOW + 5000
    assert again.headers == {"x-taskmq-unknown": 5, "shop": "paris"}


def test_a_foreign_text_in_a_count_header_resets_the_count() -> None:
    (copy,), _, _ = _settle_outcome(
        Parked("unknown", delay=timedelta(seconds=5)), body=GARBAGE, headers={"x-taskmq-unknown": "many"}
    )

    assert copy.headers == {"x-taskmq-unknown": 1}


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=3_000_000)])
def test_a_delay_beyond_the_calendar_ends_at_the_last_instant_of_a_message(delay: timedelta) -> None:
    for outcome in (Snoozed(delay), Retried(delay, ValueError("no"))):
        copies, _, app = _settle_outcome(outcome)

        (message,) = [entry.message for entry in app.flaky.journal if isinstance(entry, Published)]
        assert decode_envelope(message.body).eta == message.due == 253_402_300_799_999
        assert app.story()[-1] == "acked work"
        assert copies == []


async def test_missing_queues_are_declared_again_for_a_copy() -> None:
    with open_staged() as app:
        _define(app)
        await app.put(json.dumps(BODY).encode())
        settler = Settler(app, worker="w1")
        async with peek(app.flaky, "work", limit=1) as (delivery,):
            envelope = decode_envelope(delivery.body)
            await settler.settle(
                Attempt(delivery, envelope, app.tasks["job"], "job-1"), Dead("error", ValueError("no"))
            )

        assert app.points.names == ["put", "connect", "declare", "publish"]
        assert len(await app.messages("work.dlq")) == 1
        await app.aclose()


async def test_a_stopping_settler_gives_up_during_a_pause() -> None:
    with open_staged() as app:
        _define(app)
        app.points.rest = app.points.rest.REFUSED
        await app.put(json.dumps(BODY).encode())
        settler = Settler(app, worker="w1")
        async with peek(app.flaky, "work", limit=1) as (delivery,):
            envelope = decode_envelope(delivery.body)
            attempt = Attempt(delivery, envelope, app.tasks["job"], "job-1")
            settling = asyncio.create_task(settler.settle(attempt, Succeeded(1)))
            await asyncio.sleep(800)
            assert not settling.done()
            before = asyncio.get_running_loop().time()

            settler.stop_trying()
            await settling

            assert asyncio.get_running_loop().time() - before < 0.1
        assert app.story() == ["requeued work"]
        await app.aclose()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "the result of task share: it would change when encoded and decoded: JSON has no NaN"),
        ("x", "the result of task share: it does not match the annotated type: Expected `float | null`, got `str`"),
    ],
)
def test_a_result_that_its_caller_cannot_read_is_a_failure_with_the_reason(value: object, words: str) -> None:
    (letter,), record, _ = _settle_outcome(Succeeded(value), task="share")

    assert letter.headers["x-taskmq-reason"] == "result"
    assert words in str(letter.headers["x-taskmq-error"])
    assert record is not None
    assert record.state is JobState.FAILED


def test_a_result_that_messagepack_can_encode_is_stored() -> None:
    body = msgspec.msgpack.encode({**BODY, "task": "share"})

    _, record, _ = _settle_outcome(Succeeded(float("inf")), task="share", body=body, content_type=MSGPACK)

    assert record is not None
    assert msgspec.msgpack.decode(record.value) == float("inf")
