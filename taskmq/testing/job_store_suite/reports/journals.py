"""Tests of progress and saved values that runs report."""

import asyncio
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import DispatchedJob, Retaining
from taskmq.model.history.journals import LARGEST_SAVED, RunProgress, SavedContent, SaveRequest
from taskmq.model.history.signals import JobSignal, SignalEffect
from taskmq.model.history.suspensions import ARGUMENTS, SUSPENDED, NewArguments
from taskmq.model.jobs.reports import Report
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, forged_token, later, new_id, report
from taskmq.testing.runner import case

_AT: Final = 1_700_000_000_000
_LARGE: Final = b'"%s"' % (b"x" * 3_000_000)


def _progress(
    job: DispatchedJob, done: float, *, started: int = _AT, token: int | None = None, **facts: Any
) -> Report:
    told = RunProgress(done=done, updated=_AT + 5, **facts)
    return report(job, "progress", token=job.token if token is None else token, started=started, progress=told)


def _saving(job: DispatchedJob, number: int, *, run: str = "a", token: int | None = None, **facts: Any) -> Report:
    if (value := facts.pop("value", None)) is not None:
        facts["value"] = msgspec.Raw(value)
    request = SaveRequest(reply="worker.saved.w1", number=number, run=run, **facts)
    return report(job, "saving", token=job.token if token is None else token, saving=request)


async def _fence(driver: JobDriver, job: DispatchedJob, *, run: str = "a", base: int = 0) -> int:
    """Begin a run; return its fence, or 0 if it was refused."""
    (answer,) = await driver.store.journals.save([_saving(job, 1, run=run, base=base)])
    assert (answer.run, answer.number) == (run, 1)
    return answer.fence


async def _save(driver: JobDriver, job: DispatchedJob, number: int, **facts: Any) -> bool:
    (answer,) = await driver.store.journals.save([_saving(job, number, **facts)])
    return bool(answer.fence)


async def _values(driver: JobDriver, job: DispatchedJob) -> tuple[int, dict[str, bytes]]:
    found = (await driver.store.journals.values([job.id])).get(job.id)
    return (0, {}) if found is None else (found.version, {name: each.value for name, each in found.values.items()})


def _signal(sender: str) -> JobSignal:
    return JobSignal("ok", sender, b'"%s"' % sender.encode())


class JournalCases(JobStoreCase):
    """Every guarantee of `JournalStore`."""

    @case
    async def test_the_last_progress_of_each_job_is_read_back(self) -> None:
        driver = self.driver()
        journals = driver.store.journals
        first, second, silent = [await driver.dispatch_new() for _ in range(3)]

        await journals.report(
            [_progress(first, 1), _progress(first, 2.5, total=10, note="half ☂"), _progress(second, 7)]
        )
        await journals.report([])

        found = await journals.progress([first.id, second.id, silent.id, new_id(_AT), "x", first.id])
        assert found.keys() == {first.id, second.id}
        last = found[first.id]
        assert (last.job_id, last.done, last.total, last.note) == (first.id, 2.5, 10, "half ☂")
        assert (last.attempt, last.started, last.updated, last.state) == (1, _AT, _AT + 5, JobState.RUNNING)
        assert (found[second.id].done, found[second.id].total, found[second.id].note) == (7, None, "")
        assert await journals.progress([]) == {}

    @case
    async def test_progress_counts_only_from_the_present_run(self) -> None:
        driver = self.driver()
        journals = driver.store.journals
        job = await driver.dispatch_new()
        await journals.report([_progress(job, 5, started=_AT + 10)])

        await journals.report([_progress(job, 1, token=forged_token(job.token))])
        await journals.report([_progress(job, 2, token=later(job.token))])
        await journals.report([_progress(job, 3, started=_AT)])
        await journals.report([_progress(msgspec.structs.replace(job, id=new_id(_AT)), 4)])

        assert (await journals.progress([job.id]))[job.id].done == 5
        again = await driver.again(await driver.expect_accepted(job, "retry"))
        await journals.report([_progress(job, 6, started=_AT + 20)])
        assert (await journals.progress([job.id]))[job.id].done == 5
        await journals.report([_progress(again, 1, started=_AT)])
        assert (await journals.progress([job.id]))[job.id].attempt == 2

    @case
    async def test_an_ended_job_keeps_its_last_progress_until_it_is_deleted(self) -> None:
        driver = self.driver()
        store = driver.store
        assert isinstance(store, Retaining)
        job = await driver.dispatch_new()
        await store.journals.report([_progress(job, 9, state=JobState.SUCCEEDED)])
        await driver.expect_accepted(job, "succeeded")
        await store.journals.report([_progress(job, 1, started=_AT + 1)])

        last = (await store.journals.progress([job.id]))[job.id]

        assert (last.done, last.state) == (9, JobState.SUCCEEDED)
        assert await store.forget_ended([job.id]) == 1
        assert await store.journals.progress([job.id]) == {}

    @case
    async def test_the_next_run_gets_the_saved_values(self) -> None:
        driver = self.driver()
        job, other = await driver.dispatch_new(), await driver.dispatch_new()
        fence = await _fence(driver, job)
        assert await driver.store.journals.values([job.id, "x"]) == {job.id: (await self._empty(driver, job))}

        assert await _save(driver, job, 2, fence=fence, name="step a ☂", value=b"[1]")
        assert await _save(driver, job, 3, fence=fence, name="checkpoint", value=b"1")
        assert await _save(driver, job, 4, fence=fence, name="checkpoint", value=_LARGE)
        assert await _save(driver, job, 5, fence=fence, name="step b", value=b"{}", is_reference=True)
        await driver.store.journals.report([_progress(job, 1, details=msgspec.Raw(b'"at 7"'))])
        await driver.store.journals.report([_progress(job, 2)])

        saved = (await self.driver().store.journals.values([job.id, other.id]))[job.id]
        assert saved.version == 4
        assert saved.values == {
            "step a ☂": SavedContent(b"[1]"),
            "checkpoint": SavedContent(_LARGE),
            "step b": SavedContent(b"{}", is_reference=True),
            "heartbeat": SavedContent(b'"at 7"'),
        }

    async def _empty(self, driver: JobDriver, job: DispatchedJob) -> Any:
        found = (await driver.store.journals.values([job.id]))[job.id]
        assert (found.version, found.values) == (0, {})
        return found

    @case
    async def test_a_request_that_arrives_twice_has_one_effect(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        fence = await _fence(driver, job)
        first = _saving(job, 2, fence=fence, name="checkpoint", value=b"1")
        second = _saving(job, 3, fence=fence, name="checkpoint", value=b"2")

        answers = await driver.store.journals.save([first, second, first])
        again = await driver.store.journals.save([_saving(job, 1), first, second])

        assert [each.fence for each in answers + again] == [fence] * 6
        assert await _values(driver, job) == (2, {"checkpoint": b"2"})

    @case
    async def test_only_the_last_run_to_begin_saves_values(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        fence = await _fence(driver, job)
        assert await _save(driver, job, 2, fence=fence, name="step a", value=b"1")

        uninformed = await _fence(driver, job, run="b", base=0)
        informed = await _fence(driver, job, run="c", base=1)

        assert uninformed == 0
        assert informed > fence
        assert not await _save(driver, job, 3, fence=fence, name="step b", value=b"1")
        assert await _save(driver, job, 2, run="c", fence=informed, name="step b", value=b"2")
        assert await _values(driver, job) == (2, {"step a": b"1", "step b": b"2"})

    @case
    async def test_a_value_counts_only_with_the_present_token(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        fence = await _fence(driver, job)
        assert await _save(driver, job, 2, fence=fence, name="checkpoint", value=b"1")
        stranger = msgspec.structs.replace(job, id=new_id(_AT))

        assert not await _save(driver, job, 3, fence=fence, token=forged_token(job.token), name="a")
        assert not await _save(driver, job, 3, fence=fence, token=later(job.token), name="a")
        assert not await _save(driver, stranger, 3, fence=fence, name="a")
        assert await driver.store.journals.save([report(stranger, "saving", id="x"), _progress(job, 1)]) == []
        again = await driver.again(await driver.expect_accepted(job, "retry"))
        assert not await _save(driver, job, 3, fence=fence, name="checkpoint", value=b"2")
        assert await _fence(driver, again, run="b", base=1) > fence
        assert await _values(driver, job) == (1, {"checkpoint": b"1"})

    @case
    async def test_saved_values_are_forgotten_with_the_end_of_the_job_alone(self) -> None:
        driver = self.driver()
        journals = driver.store.journals
        done, live = await driver.dispatch_new(), await driver.dispatch_new()
        fences = [await _fence(driver, job) for job in (done, live)]
        for job, fence in zip((done, live), fences, strict=True):
            assert await _save(driver, job, 2, fence=fence, name="checkpoint", value=b"1")
            await journals.report([_progress(job, 1, details=msgspec.Raw(b"1"))])
        await driver.expect_accepted(done, "succeeded")
        assert (await journals.values([done.id])).keys() == {done.id}

        await journals.forget([done.id, live.id, "x"])
        await journals.forget([])

        assert (await journals.values([done.id, live.id])).keys() == {live.id}
        assert await _values(driver, live) == (1, {"checkpoint": b"1", "heartbeat": b"1"})
        assert not await _save(driver, done, 3, fence=fences[0], name="checkpoint", value=b"2")

    @case
    async def test_a_signal_is_saved_once_and_a_run_begins_with_or_without_it(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()

        assert await driver.store.journals.signal(job.id, _signal("a")) == SignalEffect("signal 1 a ok", True)
        assert await other.store.journals.signal(job.id, _signal("a")) == SignalEffect("signal 1 a ok", False)
        assert await other.store.journals.signal(job.id, _signal("b")) == SignalEffect("signal 2 b ok", True)

        assert await _values(other, job) == (2, {"signal 1 a ok": b'"a"', "signal 2 b ok": b'"b"'})
        assert await _fence(driver, job)
        assert await _save(driver, job, 2, fence=await _fence(driver, job), name="step x", value=b"1")
        assert not await _fence(driver, job, run="b")
        assert await _fence(driver, job, run="c", base=1)

    @case
    async def test_a_signal_during_a_run_does_not_disturb_its_saves(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        fence = await _fence(driver, job)

        await driver.store.journals.signal(job.id, _signal("a"))

        assert await _save(driver, job, 2, fence=fence, name="step x", value=b"1")
        assert await _values(driver, job) == (2, {"signal 1 a ok": b'"a"', "step x": b"1"})

    @case
    async def test_new_arguments_replace_the_values_that_they_name(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        fence = await _fence(driver, job)
        await driver.store.journals.signal(job.id, _signal("a"))
        for number, name in enumerate(("step x", "step y"), 2):
            assert await _save(driver, job, number, fence=fence, name=name, value=b"1")
        new = msgspec.json.encode(NewArguments(msgspec.Raw(b"[7]"), msgspec.Raw(b"{}"), ["step x", "step y"]))

        for _ in range(2):
            assert await _save(driver, job, 4, fence=fence, name=ARGUMENTS, value=new)

        assert await _values(driver, job) == (4, {"signal 1 a ok": b'"a"', ARGUMENTS: new})
        later = [_saving(job, 5, fence=fence, name="step z", value=b"2")]
        later.append(_saving(job, 6, fence=fence, name=ARGUMENTS, value=new.replace(b"step x", b"step z")))
        assert all(answer.fence for answer in await driver.store.journals.save(later))
        assert "step z" not in (await _values(driver, job))[1]

    @case
    async def test_concurrent_signals_get_different_numbers(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        signal = driver.store.journals.signal

        found = await asyncio.gather(*(signal(job.id, _signal(str(number))) for number in range(10)))

        numbers = sorted(int(each.key.split()[1]) for each in found if each is not None)
        assert numbers == list(range(1, 11))

    @case
    async def test_only_live_jobs_take_signals_up_to_their_limit(self) -> None:
        driver = self.driver()
        job, ended = await driver.dispatch_new(), await driver.dispatch_new()
        await driver.expect_accepted(ended, "succeeded")
        signal = driver.store.journals.signal

        for unknown in (ended.id, new_id(_AT), "x"):
            assert await signal(unknown, _signal("a")) is None
        large = JobSignal("ok", "a", b'"%s"' % (b"x" * LARGEST_SAVED))
        assert await signal(job.id, large) == SignalEffect("", False)
        assert await _values(driver, job) == (0, {})

    @case
    async def test_a_suspended_job_that_missed_a_signal_is_due_at_once(self) -> None:
        driver = self.driver()
        first, second = await driver.dispatch_new(), await driver.dispatch_new()
        until = await driver.store.now_ms() + HOUR
        why = ErrorRecord(type_name=SUSPENDED, message="waiting")
        for job in (first, second):
            assert await _fence(driver, job)
            await driver.store.journals.signal(job.id, _signal("a"))

        missed = await driver.expect_accepted(first, "snoozed", until=until, delay=HOUR, saves=0, error=why)
        known = await driver.expect_accepted(second, "snoozed", until=until, delay=HOUR, saves=1, error=why)

        assert (missed.state, known.state) == (JobState.SCHEDULED, JobState.SCHEDULED)
        assert missed.due <= await driver.store.now_ms()
        assert known.due == until
