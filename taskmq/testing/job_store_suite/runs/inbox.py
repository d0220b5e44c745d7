"""Tests of signals, timers, batches and the answers to their senders."""

import asyncio
from collections.abc import Sequence

import msgspec

from taskmq.contracts.jobs import Lane, NewInboxRow
from taskmq.model.runs.records import RunState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import QUEUE, new_id
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.runner import case

_WAIT = {"ok": {"wait": "approval", "roles": ["finance"]}, "after": {"task": "t", "args": ["${steps.ok.result}"]}}


class RunInboxes(JobStoreCase):
    """Rows that are sent to runs."""

    @case
    async def test_a_run_that_exceeds_its_timeout_fails_once_its_jobs_have_ended(self) -> None:
        driver = RunDriver(self.store())
        await driver.runs.put_workflow("", "w", content_of({"s": {"task": "t", "queue": "q"}}, timeout=0))
        (run, other) = (await driver.start(workflow="w"), await driver.start(workflow="w", timeout=3_600_000))
        await driver.settle()
        await driver.dispatch(queue="q")

        assert await driver.runs.fire_timers() is not None
        await driver.settle()

        assert driver.asked == [(await driver.step(run, "s")).job]
        await driver.finish(run, "s", "cancelled")
        record = await driver.run(run)
        assert (record.state, record.cancelled) == (RunState.FAILED, "timeout")
        assert record.error == "timeout: it has not ended within 0 s"
        assert (await driver.run(other)).state is RunState.RUNNING

    @case
    async def test_a_signal_ends_the_step_that_waits_for_it(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(_WAIT)
        await driver.settle()

        row = NewInboxRow(kind="signal", id="s", name="approval", value=b'{"by":"me"}', roles=("finance",))
        assert await driver.send(run, row) == "consumed"

        assert await driver.arguments(run, "after") == [[{"by": "me"}], {}]

    @case
    async def test_a_second_row_of_a_senders_id_gets_the_answer_of_the_first(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({**_WAIT, "again": {"wait": "approval", "needs": ["ok"]}})
        await driver.settle()
        row = NewInboxRow(kind="signal", id="s", name="approval", roles=("finance",))

        assert await driver.runs.answer(run, "s") is None
        assert [await driver.send(run, row), await driver.send(run, row)] == ["consumed"] * 2

        assert (await driver.states(run))["again"] == "running"

    @case
    async def test_an_early_signal_waits_for_its_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"first": {"task": "t"}, "ok": {"wait": "go", "needs": ["first"]}})
        await driver.settle()
        row = NewInboxRow(kind="signal", id="early", name="go", value=b"1")
        assert await driver.send(run, row) == "waiting"
        assert await driver.send(run, NewInboxRow(kind="signal", id="late", name="go", value=b"2")) == "waiting"
        assert await driver.runs.pending(limit=10) == []

        await driver.finish(run, "first")

        assert await driver.value(run, "ok") == 1
        assert await driver.runs.answer(run, "early") == "consumed"
        assert await driver.runs.answer(run, "late") == "waiting"

    @case
    async def test_a_signal_from_the_wrong_role_is_refused(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(_WAIT)
        await driver.settle()

        answers = [
            await driver.send(run, NewInboxRow(kind="signal", id="a", name="approval", roles=("other",))),
            await driver.send(run, NewInboxRow(kind="signal", id="b", name="approval")),
            await driver.send(run, NewInboxRow(kind="signal", id="c", name="unknown")),
        ]

        assert answers == [
            "refused: only finance may send it",
            "refused: only an identified user may send it",
            "refused: no step waits for the signal 'unknown'",
        ]

    @case
    async def test_rows_for_an_unknown_run_are_not_stored(self) -> None:
        driver = RunDriver(self.store())
        row = NewInboxRow(kind="cancel", id="c")

        assert not await driver.runs.send("mine", row)
        assert not await driver.runs.send(new_id(0), row)
        assert await driver.runs.answer("mine", "c") is None
        assert await driver.runs.answer(new_id(0), "c") is None
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_a_search_for_pending_runs_continues_after_an_id(self) -> None:
        driver = RunDriver(self.store())
        runs = [await driver.start({"s": {"task": "t"}}) for _ in range(3)]

        assert await driver.runs.pending(limit=2) == sorted(runs)[:2]
        assert await driver.runs.pending(limit=2, after=sorted(runs)[1]) == sorted(runs)[2:]
        assert await driver.runs.pending(limit=2, after=sorted(runs)[2]) == []

    @case
    async def test_a_due_timer_ends_a_sleep(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"past": {"sleep": "2000-01-01T00:00:00Z"}, "future": {"sleep": "1h"}})
        assert await driver.runs.fire_timers() is None
        assert (await driver.advance(run))[run].timer == 946_684_800_000
        await driver.settle()

        following = await driver.runs.fire_timers()
        await driver.settle()

        assert await driver.states(run) == {"past": "succeeded", "future": "running"}
        assert following is not None
        assert following > await driver.store.now_ms()
        assert await driver.runs.fire_timers() == following
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_many_due_timers_fire_in_portions(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({f"s{number}": {"sleep": "2000-01-01T00:00:00Z"} for number in range(5)})
        await driver.settle()

        while (following := await driver.runs.fire_timers(limit=2)) is not None:
            assert following <= await driver.store.now_ms()
        await driver.settle()

        assert set((await driver.states(run)).values()) == {"succeeded"}

    @case
    async def test_a_batch_takes_calls_until_it_is_closed(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"b": {"batch": True}})
        await driver.settle()
        calls = tuple(msgspec.Raw(msgspec.json.encode({"task": "t", "args": [number]})) for number in range(3))

        assert await driver.send(run, NewInboxRow(kind="add", id="1", step="b", calls=calls)) == "added"
        assert await driver.arguments(run, "b", 2) == [[2], {}]
        for child in range(3):
            await driver.finish(run, "b", child=child, value=child)
        assert (await driver.states(run))["b"] == "running"
        assert await driver.send(run, NewInboxRow(kind="close", id="2", step="b")) == "closed"

        assert await driver.value(run, "b") == [0, 1, 2]
        assert await driver.send(run, NewInboxRow(kind="add", id="3", step="b", calls=calls)) == "closed"

    @case
    async def test_schedulers_that_advance_one_run_take_turns(self) -> None:
        drivers = [RunDriver(self.store()) for _ in range(4)]
        run = await drivers[0].start(
            {"each": {"task": "t", "each": list(range(1_200))}, "after": {"task": "t", "needs": ["each"]}}
        )

        await asyncio.gather(*(driver.settle() for driver in drivers))

        assert (await drivers[0].step(run, "each")).active == 1_200
        assert len((await drivers[0].dispatch(queue="mail")).jobs) == 1_000

    @case
    async def test_one_transaction_advances_several_runs_and_skips_unknown_ones(self) -> None:
        driver = RunDriver(self.store())
        chain = {"a": {"task": "t", "args": [1]}, "b": {"task": "t", "args": ["${steps.a.result}"]}}
        chains = [await driver.start(chain) for _ in range(3)]
        sleeper = await driver.start({"s": {"sleep": "1h"}})

        advanced = await driver.advance(chains[2], sleeper, "mine", chains[0], new_id(0), chains[1])

        assert {run: (one.lanes, one.timer is None, one.has_more) for run, one in advanced.items()} == {
            **{run: (frozenset({Lane(QUEUE, 4, "")}), True, False) for run in chains},
            sleeper: (frozenset(), False, False),
        }
        for number, run in enumerate(chains):
            await driver.finish(run, "a", value=number)
        assert [await driver.arguments(run, "b") for run in chains] == [[[number], {}] for number in range(3)]
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_runs_without_room_in_the_transaction_have_more_to_do(self) -> None:
        driver = RunDriver(self.store())
        runs = [await driver.start({f"s{number}": {"task": "t"} for number in range(200)}) for _ in range(4)]

        counts = [await self._advance_and_count(driver, runs)]
        while any(counts[-1].values()):
            counts.append(await self._advance_and_count(driver, runs))

        assert len(counts) > 3
        for run in runs:
            assert set((await driver.states(run)).values()) == {"running"}

    async def _advance_and_count(self, driver: RunDriver, runs: Sequence[str]) -> dict[str, bool]:
        return {run: one.has_more for run, one in (await driver.advance(*runs)).items()}
