"""The journal of a run, with a store in memory."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from taskmq import Context, TaskMQ
from taskmq.contracts.stores import BegunRun
from taskmq.errors import EncodeError, InvalidOption, RunSuperseded, StateUnavailable, TooLarge
from taskmq.model.envelope import Envelope
from taskmq.run.journal import LARGEST_VALUE, RunJournal


class Shelf:
    """The saved steps and progress of the runs of one job."""

    def __init__(self, values: dict[str, bytes] | None = None) -> None:
        self.values = values or {}
        self.told: list[tuple[float, float | None, str, bytes | None]] = []
        self.changes = 0
        self.begun = 0
        self.error: Exception | None = None
        self.now = 1_000_000

    def mark_changed(self, journal: RunJournal) -> None:
        self.changes += 1

    def look(self, journal: RunJournal) -> None:
        journal.is_dirty = False
        self.told.append((journal.done, journal.total, journal.note, journal.details))

    def now_ms(self) -> int:
        return self.now

    async def begin(self, journal: RunJournal) -> BegunRun:
        return self.begin_blocking(journal)

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        self.save_blocking(journal, name, value)

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        if self.error is not None:
            raise self.error
        if journal.run is None:
            self.begun += 1
            journal.run = BegunRun(self.begun, dict(self.values))
        return journal.run

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.values[name] = value


def context(writer: Shelf) -> Context:
    return Context(
        Envelope(task="t", attempt=2),
        job_id="job-7",
        max_attempts=5,
        queue="q",
        redelivered=False,
        _writer=writer,
    )


def test_a_run_without_journal_calls_has_no_journal() -> None:
    assert context(Shelf()).journal is None


def test_frequent_progress_is_sent_once_per_reading() -> None:
    writer = Shelf()
    run = context(writer)

    for done in range(1000):
        run.progress(done, 1000, f"at {done}")
    assert writer.changes == 1
    assert run.journal is not None
    writer.look(run.journal)
    run.progress(1000)
    writer.look(run.journal)

    assert writer.changes == 2
    assert writer.told == [(999, 1000, "at 999", None), (1000, None, "", None)]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_progress_that_is_not_a_finite_number_is_refused(number: float) -> None:
    run = context(Shelf())

    for done, total in ((number, None), (1, number)):
        with pytest.raises(EncodeError, match="must be finite"):
            run.progress(done, total)

    assert run.journal is None


def test_a_note_has_a_maximum_length() -> None:
    writer = Shelf()
    run = context(writer)

    run.progress(1, note="x" * 10_000)

    assert run.journal is not None
    assert len(run.journal.note) == 500


def test_an_unencodable_note_is_escaped() -> None:
    run = context(Shelf())

    run.progress(1, note="caf\udce9")

    assert run.journal is not None
    assert run.journal.note == "caf\\udce9"


def test_a_heartbeat_updates_its_details_and_keeps_them_if_none_are_given() -> None:
    writer = Shelf()
    run = context(writer)

    run.heartbeat({"row": 5})
    run.heartbeat()

    assert run.journal is not None
    assert run.journal.details == b'{"row":5}'
    assert writer.changes == 1


def test_details_without_a_json_form_are_an_error_of_the_task() -> None:
    with pytest.raises(EncodeError, match="details of the heartbeat cannot be saved"):
        context(Shelf()).heartbeat(object())


@dataclass
class Sale:
    item: str
    count: int


def test_a_step_runs_once_per_job_and_later_runs_get_its_typed_value() -> None:
    writer = Shelf()
    calls: list[tuple[str, int]] = []

    def sell(item: str, *, count: int) -> Sale:
        calls.append((item, count))
        return Sale(item, count)

    first = context(writer).step("sell", sell, "hat", count=2)
    second = context(writer).step("sell", sell, "hat", count=2)

    assert first == second == Sale("hat", 2)
    assert calls == [("hat", 2)]


def test_a_step_returns_the_same_value_in_the_first_run_as_in_later_ones() -> None:
    writer = Shelf()

    def pair() -> Any:
        return (1, 2)

    assert context(writer).step("pair", pair) == [1, 2] == context(writer).step("pair", pair)


def test_async_steps_run_concurrently_and_each_once() -> None:
    writer = Shelf()
    calls: list[int] = []

    async def double(n: int) -> int:
        calls.append(n)
        await asyncio.sleep(0)
        return 2 * n

    async def run() -> list[int]:
        it = context(writer)
        return await asyncio.gather(*(it.astep(f"double {n}", double, n) for n in range(5)))

    assert asyncio.run(run()) == asyncio.run(run()) == [0, 2, 4, 6, 8]
    assert calls == [0, 1, 2, 3, 4]


def test_a_raising_step_is_not_saved_and_may_be_retried_in_the_same_run() -> None:
    writer = Shelf()
    run = context(writer)
    fails = [True, False]

    def flaky() -> str:
        if fails.pop(0):
            raise ConnectionError("no")
        return "done"

    with pytest.raises(ConnectionError):
        run.step("flaky", flaky)

    assert writer.values == {}
    assert run.step("flaky", flaky) == "done"


def test_two_steps_of_one_name_in_one_run_are_refused() -> None:
    run = context(Shelf())
    run.step("one", str)

    with pytest.raises(InvalidOption, match="job job-7: step 'one' occurs twice in one run"):
        run.step("one", str)


def test_a_step_may_be_named_after_any_file() -> None:
    writer = Shelf()

    assert context(writer).step("read \udcff", str, "once") == "once"
    assert writer.values == {"step read \\udcff": b'"once"'}
    assert context(writer).step("read \udcff", str, "twice") == "once"


def test_a_step_with_an_unsavable_value_is_not_done_and_named() -> None:
    writer = Shelf()

    with pytest.raises(EncodeError, match=r"the value of step 'odd' cannot be saved"):
        context(writer).step("odd", object)

    assert writer.values == {}


def test_a_saved_value_of_another_type_is_refused_with_the_name_of_the_step() -> None:
    writer = Shelf({"step old": b'"text"'})

    def old() -> int:
        return 1

    with pytest.raises(EncodeError, match="the value of step 'old' does not match its function's return type"):
        context(writer).step("old", old)


def test_a_function_with_an_unresolvable_annotation_returns_plain_data() -> None:
    def odd() -> "OnlyForCheckers":  # type: ignore[name-defined]  # noqa: F821
        return {"a": 1}

    assert context(Shelf()).step("odd", odd) == {"a": 1}


@pytest.mark.parametrize("error", [StateUnavailable("down"), RunSuperseded("another one")])
def test_an_unsavable_step_is_an_error_of_the_task(error: Exception) -> None:
    writer = Shelf()
    run = context(writer)
    calls: list[int] = []

    def work() -> int:
        writer.error = error
        calls.append(1)
        return 1

    with pytest.raises(type(error)):
        run.step("work", work)
    with pytest.raises(type(error)):
        context(writer).step("work", work)

    # Without knowledge of the saved steps, no step runs.
    assert calls == [1]


def test_a_checkpoint_is_available_to_this_run_and_the_next() -> None:
    writer = Shelf({"heartbeat": b"[1]"})
    run = context(writer)
    assert (run.last_checkpoint, run.last_heartbeat, run.fencing_token) == (None, [1], 1)

    run.checkpoint({"row": 5})
    asyncio.run(run.acheckpoint({"row": 6}))

    assert run.last_checkpoint == {"row": 6}
    later = context(writer)
    asyncio.run(later.resume())
    assert (later.last_checkpoint, later.fencing_token) == ({"row": 6}, 2)


def test_a_checkpoint_without_a_json_form_names_its_job() -> None:
    with pytest.raises(EncodeError, match="the checkpoint of job job-7 cannot be saved"):
        context(Shelf()).checkpoint(object())


def test_a_value_is_too_large_for_a_plain_call_as_it_is_for_the_state() -> None:
    with pytest.raises(TooLarge, match="the value of step 'large' has"):
        Context.create_detached("t").step("large", lambda: "x" * LARGEST_VALUE)
    with pytest.raises(TooLarge, match="the checkpoint has"):
        asyncio.run(Context.create_detached("t").acheckpoint("x" * LARGEST_VALUE))


# Outside a worker


def test_a_plain_call_supports_everything_and_saves_nothing() -> None:
    app = TaskMQ("memory://journal")
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        return 3

    @app.task
    def sell(ctx: Context) -> list[Any]:
        ctx.progress(1, 2)
        ctx.heartbeat("here")
        before = ctx.last_checkpoint
        ctx.checkpoint(5)
        return [before, ctx.last_checkpoint, ctx.last_heartbeat, ctx.fencing_token, ctx.step("work", work)]

    @app.task
    async def asell(ctx: Context) -> list[Any]:
        async def awork() -> int:
            return work()

        await ctx.resume()
        await ctx.acheckpoint(6)
        return [ctx.last_checkpoint, await ctx.astep("work", awork)]

    assert sell() == sell() == [None, 5, None, 0, 3]
    assert asyncio.run(asell()) == [6, 3]
    assert calls == [1, 1, 1]


def test_a_value_that_would_read_back_differently_is_not_saved() -> None:
    context = Context.create_detached("t")

    def share() -> float | None:
        return float("nan")

    with pytest.raises(EncodeError, match=r"the value of step 'share' cannot be saved: .*JSON has no NaN"):
        context.step("share", share)
    with pytest.raises(EncodeError, match=r"the checkpoint of job .* cannot be saved: .*JSON has no NaN"):
        context.checkpoint([float("inf")])
    with pytest.raises(EncodeError, match=r"the details of the heartbeat cannot be saved: .*JSON has no NaN"):
        context.heartbeat({"share": float("nan")})
    # The step may be tried again.
    assert context.step("share", lambda: 0.5) == 0.5
