"""Jobs whose tasks sleep, in an app without a state."""

import asyncio
from functools import partial

import pytest

from taskmq import Context, TaskMQ
from taskmq.contracts.jobs import JobUpdate
from taskmq.errors import InvalidArguments, JobConflict, JobNotFound, SavedValuesFull, TaskFailed
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import RETRY, Shop, in_shop

_MINUTE = 60_000
_made: list[str] = []
# The calls of the task `changed`, in order: a deploy between two runs changes them.
_code: list[str] = []


async def _make(name: str) -> str:
    _made.append(name)
    return name


def define_sleepers(app: TaskMQ) -> None:
    """Define tasks that sleep."""

    @app.task(name="remind", queue="work", retry=RETRY, idempotency_key="order")
    async def remind(context: Context, order: int) -> tuple[int, list[str]]:
        found = [await context.astep("first", _make, "first")]
        await context.asleep("2m")
        found.append(await context.astep("second", _make, f"second {order}"))
        await context.asleep("3m")
        return context.attempt, found

    @app.task(name="ask", queue="work", retry=RETRY)
    async def ask(context: Context, timeout: str | None = None) -> list[object]:
        await context.astep("first", _make, "first")
        first = await context.await_for("answer", int, timeout=timeout, default=-1)
        return [context.attempt, first, await context.await_for("answer", str)]

    @app.task(name="busy", queue="work", retry=None)
    async def busy(context: Context) -> int:
        await context.astep("first", _make, "first")
        # The signal comes now, after this run began.
        await asyncio.sleep(30)
        return await context.await_for("answer", int)

    @app.task(name="count", queue="work", retry=RETRY)
    async def count(context: Context, start: int, end: int = 3) -> list[object]:
        await context.astep("made", _make, f"made {start}")
        if start < end:
            taken = await context.await_for("next", int)
            await context.acontinue_as_new(start + taken, end=end)
        return [start, context.attempt, await context.await_for("answer", int)]

    @app.task(name="changed", queue="work", retry=RETRY)
    async def changed(context: Context) -> int:
        for name, what in (call.split() for call in _code):
            if name == "step":
                await context.astep(what, _make, what)
            elif name == "sleep":
                await context.asleep(what)
            else:
                await context.await_for(what)
        return context.attempt

    @app.task(name="together", queue="work", retry=None)
    async def together(context: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.asleep("2m", name="long"))
            group.create_task(context.asleep("1m", name="short"))
        return "awake"

    @app.task(name="loop", queue="work", retry=RETRY)
    async def loop(context: Context, is_saved_first: bool) -> int:
        await context.resume()
        for number in range(context.last_checkpoint or 0, 3):
            if is_saved_first:
                await context.acheckpoint(number + 1)
            await context.asleep("1m")
            _made.append(str(number))
            if not is_saved_first:
                await context.acheckpoint(number + 1)
        return context.attempt

    @app.task(name="answers", queue="work", retry=RETRY)
    async def answers(context: Context) -> int:
        await context.resume()
        for number in range(context.last_checkpoint or 0, 3):
            _made.append(await context.await_for("answer", str))
            await context.acheckpoint(number + 1)
        return context.attempt

    @app.task(name="in_a_step", queue="work", retry=None)
    async def in_a_step(context: Context) -> None:
        await context.astep("nap", context.asleep, "1h")


in_own_store = partial(in_shop, has_state=False, also=define_sleepers)


@pytest.fixture(autouse=True)
def _forget() -> None:
    _made.clear()
    _code.clear()


async def _becomes(shop: Shop, job_id: str, state: JobState) -> None:
    while (await shop.jobs.aget(job_id)).state is not state:
        await asyncio.sleep(1)


async def _is_made(name: str) -> None:
    while name not in _made:
        await asyncio.sleep(1)


@run_by(in_own_store)
async def test_a_sleeping_job_wakes_after_its_time_in_the_same_attempt(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("remind", 7)

    assert await job.aresult(timeout="9m") == (1, ["first", "second 7"])
    assert _made == ["first", "second 7"]
    record = await shop.jobs.aget(job.id)
    assert record.finished is not None
    assert record.first_started is not None
    assert 5 * _MINUTE <= record.finished - record.first_started < 6 * _MINUTE
    assert [(each.attempt, each.error) for each in await shop.jobs.aattempts(job.id)] == [(1, None)]


@run_by(in_own_store)
async def test_a_sleeping_job_says_how_long_it_sleeps(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("remind", 7)
    await _becomes(shop, job.id, JobState.SCHEDULED)

    record = await shop.jobs.aget(job.id)
    (listed,) = (await shop.jobs.alist(JobFilter(states=frozenset({JobState.SCHEDULED})))).jobs
    reasons = (await shop.jobs.aexplain(job.id)).reasons

    assert record.suspension.startswith("asleep until ")
    assert listed.suspension == record.suspension
    assert reasons[0].startswith(f"it is {record.suspension}, in 1")
    assert not any("failed" in reason for reason in reasons)
    await job.acancel()
    assert (await shop.jobs.aget(job.id)).suspension == ""


_OTHER_CHANGE = pytest.mark.nightly(
    "tests/unit/stored_jobs/test_suspensions.py::test_a_job_whose_code_has_changed_is_held_until_it_is_released"
)


@pytest.mark.parametrize(
    ("calls", "difference"),
    [
        pytest.param(
            ["step b", "step a", "sleep 2m"],
            "sleep 1 was saved after step 'b', and now comes after step 'a'",
            marks=_OTHER_CHANGE,
        ),
        pytest.param(
            ["step a", "sleep 2m"],
            "sleep 1 was saved after step 'b', and now comes after step 'a'",
            marks=_OTHER_CHANGE,
        ),
        (["step a", "wait b"], "step 'b' was saved, and wait 1 for 'b' is now called"),
    ],
)
@run_by(in_own_store)
async def test_a_job_whose_code_has_changed_is_held_until_it_is_released(
    shop: Shop, /, calls: list[str], difference: str
) -> None:
    before = ["step a", "step b", "sleep 2m", "step c"]
    _code[:] = before
    job = await shop.jobs.asubmit("changed")
    await _becomes(shop, job.id, JobState.SCHEDULED)
    _code[:] = calls
    await _becomes(shop, job.id, JobState.HELD)

    record = await shop.jobs.aget(job.id)
    (reason,) = (await shop.jobs.aexplain(job.id)).reasons
    (event,) = await shop.jobs.ahistory(job.id)
    assert record.suspension == f"its calls differ from those of an earlier run: {difference}"
    assert reason == f"it is held, because {record.suspension}"
    assert (event.kind, event.by, event.note) == ("hold", "w1", record.suspension)
    await asyncio.sleep(300)
    assert (await shop.jobs.aget(job.id)).state is JobState.HELD

    _code[:] = before
    await shop.jobs.arelease(job.id)
    assert await job.aresult(timeout="1m") == 1
    assert _made == ["a", "b", "c"]
    assert [(each.attempt, each.error) for each in await shop.jobs.aattempts(job.id)] == [(1, None)]


def _define_second_version(app: TaskMQ) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKMQ_APP_VERSION", "2")
        assert app.sessions.app_version == "2"
    define_sleepers(app)


@run_by(partial(in_shop, has_state=False, also=_define_second_version))
async def test_a_job_whose_code_has_changed_is_released_once_other_code_runs(shop: Shop, /) -> None:
    _code[:] = ["step a", "sleep 2m"]
    job = await shop.jobs.asubmit("changed")
    await _becomes(shop, job.id, JobState.SCHEDULED)
    _code[:] = ["step b", "sleep 2m"]
    await _becomes(shop, job.id, JobState.HELD)
    await asyncio.sleep(120)
    assert (await shop.jobs.aget(job.id)).state is JobState.HELD

    shop.worker.drain()
    for _ in range(6):
        shop.stage.worker_says(name="w3", app_version="3")
        await asyncio.sleep(10)

    assert (await shop.jobs.aget(job.id)).state is not JobState.HELD
    assert [(each.kind, each.by) for each in await shop.jobs.ahistory(job.id)] == [
        ("hold", "w1"),
        ("release", "scheduler"),
    ]


@run_by(in_own_store)
async def test_a_step_behind_the_last_call_may_be_added(shop: Shop, /) -> None:
    _code[:] = ["step a", "sleep 2m"]
    job = await shop.jobs.asubmit("changed")
    await _becomes(shop, job.id, JobState.SCHEDULED)
    _code.append("step b")

    assert await job.aresult(timeout="9m") == 1
    assert _made == ["a", "b"]


@pytest.mark.nightly("tests/unit/run/test_waits.py::test_concurrent_sleeps_find_their_values_in_any_order")
@run_by(in_own_store)
async def test_concurrent_sleeps_of_a_job_end_one_after_the_other(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("together")

    assert await job.aresult(timeout="9m") == "awake"
    record = await shop.jobs.aget(job.id)
    assert record.finished is not None
    assert 2 * _MINUTE <= record.finished - record.submitted < 3 * _MINUTE


@pytest.mark.parametrize(
    "is_saved_first",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.nightly(
                "tests/unit/stored_jobs/test_suspensions.py::"
                "test_each_sleep_of_a_loop_that_resumes_from_its_checkpoint_takes_its_time"
            ),
        ),
    ],
)
@run_by(in_own_store)
async def test_each_sleep_of_a_loop_that_resumes_from_its_checkpoint_takes_its_time(
    shop: Shop, /, is_saved_first: bool
) -> None:
    job = await shop.jobs.asubmit("loop", is_saved_first)

    assert await job.aresult(timeout="9m") == 1
    record = await shop.jobs.aget(job.id)
    assert record.finished is not None
    assert 3 * _MINUTE <= record.finished - record.submitted < 4 * _MINUTE
    assert _made == ([] if is_saved_first else ["0", "1", "2"])


@run_by(in_own_store)
async def test_a_loop_that_resumes_from_its_checkpoint_takes_each_signal_once(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("answers")
    for text in ("a", "b", "c"):
        await _becomes(shop, job.id, JobState.SCHEDULED)
        await shop.jobs.asignal(job.id, "answer", text)
        await _is_made(text)

    assert await job.aresult(timeout="9m") == 1
    assert _made == ["a", "b", "c"]


@run_by(in_own_store)
async def test_a_step_whose_function_sleeps_fails_before_anything_is_saved(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("in_a_step")

    with pytest.raises(TaskFailed, match=r"sleep\(\) in the function of step 'nap' .* outside of steps"):
        await job.aresult(timeout="1m")


@run_by(in_own_store)
async def test_a_job_that_waits_runs_again_with_the_signal(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask")
    await _becomes(shop, job.id, JobState.SCHEDULED)
    reasons = (await shop.jobs.aexplain(job.id)).reasons

    assert reasons[0] == "it is waiting for the signal 'answer'"
    assert await shop.jobs.asignal(job.id, "other", 0, signal_id="other-1") == "other-1"
    assert (await shop.jobs.aget(job.id)).suspension == "waiting for the signal 'answer'"
    await shop.jobs.asignal(job.id, "answer", 42)
    await _becomes(shop, job.id, JobState.SCHEDULED)
    await shop.jobs.asignal(job.id, "answer", "yes")

    assert await job.aresult(timeout="9m") == [1, 42, "yes"]
    assert _made == ["first"]
    assert [each.note for each in await shop.jobs.ahistory(job.id)] == ["signal 'answer'"] * 2


@run_by(in_own_store)
async def test_a_signal_that_does_not_fit_the_awaited_form_is_refused(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask")
    await _becomes(shop, job.id, JobState.SCHEDULED)

    with pytest.raises(InvalidArguments, match=r"signal 'answer' does not fit its form: .*\"integer\""):
        await shop.jobs.asignal(job.id, "answer", "42", signal_id="one")
    assert (await shop.jobs.aget(job.id)).suspension == "waiting for the signal 'answer'"
    await shop.jobs.asignal(job.id, "answer", 42, signal_id="one")
    await _becomes(shop, job.id, JobState.SCHEDULED)
    await shop.jobs.asignal(job.id, "answer", 42, signal_id="one")
    await shop.jobs.asignal(job.id, "answer", "yes")

    assert await job.aresult(timeout="9m") == [1, 42, "yes"]


@run_by(in_own_store)
async def test_signals_that_come_before_the_first_run_are_kept(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask", delay="1m")
    await shop.jobs.asignal(job.id, "answer", 1, signal_id="a")
    await shop.jobs.asignal(job.id, "answer", 2, signal_id="a")
    await shop.jobs.asignal(job.id, "answer", "two", signal_id="b")
    assert (await shop.jobs.aget(job.id)).state is JobState.SCHEDULED

    assert await job.aresult(timeout="9m") == [1, 1, "two"]
    record = await shop.jobs.aget(job.id)
    assert record.started is not None
    assert record.started >= record.submitted + _MINUTE


@run_by(in_own_store)
async def test_a_signal_that_comes_during_a_run_wakes_the_job_afterwards(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("busy")
    await _is_made("first")

    await shop.jobs.asignal(job.id, "answer", 7)

    assert await job.aresult(timeout="9m") == 7


@run_by(in_own_store)
async def test_a_wait_that_times_out_leaves_the_next_signal_to_the_next_wait(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask", "2m")
    await asyncio.sleep(180)
    await shop.jobs.asignal(job.id, "answer", "late")

    assert await job.aresult(timeout="9m") == [1, -1, "late"]


@run_by(in_own_store)
async def test_a_signal_that_cannot_wake_its_job_is_kept_and_wakes_it_when_sent_again(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask", None)
    await _becomes(shop, job.id, JobState.SCHEDULED)

    async def change_first(update: JobUpdate) -> None:
        """Answer like a store whose job has just changed."""

    vars(shop.process.store)["update"] = change_first
    with pytest.raises(JobConflict, match=r"keeps signal 'answer', but changed 10 times .* signal_id='one'"):
        await shop.jobs.asignal(job.id, "answer", 7, signal_id="one")
    assert (await shop.jobs.aget(job.id)).state is JobState.SCHEDULED
    del vars(shop.process.store)["update"]

    await shop.jobs.asignal(job.id, "answer", 7, signal_id="one")
    await shop.jobs.asignal(job.id, "answer", "last", signal_id="two")
    assert await job.aresult(timeout="9m") == [1, 7, "last"]


@run_by(in_own_store)
async def test_an_ended_job_takes_no_signal(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("together")
    await job.acancel()

    with pytest.raises(JobConflict, match=r"has ended: signal 'answer' was not sent"):
        await shop.jobs.asignal(job.id, "answer")
    with pytest.raises(JobNotFound):
        await shop.jobs.asignal("unknown", "answer")


@pytest.mark.nightly("tests/unit/stored_jobs/test_journals.py::test_a_job_saves_at_most_a_thousand_values")
@run_by(in_own_store)
async def test_a_job_keeps_at_most_a_thousand_values(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("ask", delay="1h")

    for _ in range(1_000):
        await shop.jobs.asignal(job.id, "answer", 1)

    with pytest.raises(SavedValuesFull, match="no room for the signal 'answer'"):
        await shop.jobs.asignal(job.id, "answer", 1)


@run_by(in_own_store)
async def test_a_job_continues_with_new_arguments_and_the_signals_it_has_left(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("count", 1)
    for number in range(2):
        await shop.jobs.asignal(job.id, "next", 1, signal_id=str(number))
    await shop.jobs.asignal(job.id, "answer", 42)

    assert await job.aresult(timeout="9m") == [3, 1, 42]
    assert _made == ["made 1", "made 2", "made 3"]
