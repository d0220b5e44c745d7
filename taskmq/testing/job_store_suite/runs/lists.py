"""Tests of lists of runs, and of their deletion."""

from typing import Any

from taskmq.contracts.jobs import NewInboxRow, Prunable, Retaining, RunFilter
from taskmq.model.runs.records import RunState, StepKey
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.runner import case

_WAITS: dict[str, Any] = {"ok": {"wait": "go"}}
_SLEEPS: dict[str, Any] = {"now": {"sleep": 0}}


class RunLists(JobStoreCase):
    """Filters and pages, retention and erasure."""

    @case
    async def test_runs_are_listed_newest_first_in_pages(self) -> None:
        driver = RunDriver(self.store())
        runs = [await driver.start(_WAITS) for _ in range(5)]
        expected = sorted(runs, reverse=True)

        first = await driver.runs.list_runs(limit=2)
        second = await driver.runs.list_runs(limit=3, after=first.after)

        assert [run.id for run in first.runs] == expected[:2]
        assert [run.id for run in second.runs] == expected[2:]
        assert (second.after, second.is_bounded) == (None, False)

    @case
    async def test_runs_with_ids_that_do_not_sort_by_time_are_listed_by_their_start(self) -> None:
        driver = RunDriver(self.store())
        # Of version 5, as those that are derived from chosen names: before and behind all ids that contain the time.
        derived = [{"id": f"{first}-0000-5000-8000-000000000000"} for first in ("ffffffff", "00000000")]
        started = [
            await driver.start(_WAITS, tenant="acme", **fields) for fields in ({}, derived[0], {}, derived[1], {})
        ]
        runs = [await driver.run(run_id) for run_id in started]
        newest_first = sorted(runs, key=lambda run: (run.created, run.id), reverse=True)

        pages: list[list[str]] = []
        after: str | None = None
        while not pages or after is not None:
            page = await driver.runs.list_runs(RunFilter(tenant="acme"), after=after, limit=2)
            pages.append([run.id for run in page.runs])
            after = page.after
        since, until = runs[0].created, runs[-1].created
        all_of_them = await driver.runs.list_runs(RunFilter(since=since, until=until + 1))
        none_of_the_last = await driver.runs.list_runs(RunFilter(since=since, until=until))

        assert [each for page in pages for each in page] == [run.id for run in newest_first]
        assert all_of_them.runs == newest_first
        assert none_of_the_last.runs == [run for run in newest_first if run.created < until]

    @case
    async def test_runs_are_selected_by_each_field_of_a_filter(self) -> None:
        driver = RunDriver(self.store())
        await driver.runs.put_workflow("acme", "inner", content_of(_WAITS))
        nightly = await driver.start(
            _WAITS, workflow="nightly-report", tenant="acme", labels={"team": "ops", "a": "b"}
        )
        parent = await driver.start({"sub": {"workflow": "inner"}}, workflow="parent", tenant="acme")
        other = await driver.start(_WAITS, workflow="nightly", labels={"team": "dev"})
        done = await driver.start(_SLEEPS, workflow="nightly.done", tenant="acme")
        await driver.settle()
        await driver.runs.fire_timers()
        await driver.settle()
        child = (await driver.step(parent, "sub")).job
        now = await driver.store.now_ms()

        async def find(**fields: Any) -> set[str]:
            return {run.id for run in (await driver.runs.list_runs(RunFilter(**fields))).runs}

        assert await find() == {nightly, parent, other, done, child}
        assert await find(tenant="acme") == {nightly, parent, done, child}
        assert await find(tenant="") == {other}
        assert await find(workflow="nightly") == {other}
        assert await find(workflow="nightly*") == {nightly, other, done}
        assert await find(tenant="acme", workflow="*t*") == {nightly, parent, done}
        assert await find(workflow="nightly?") == set()
        assert await find(states=(RunState.SUCCEEDED,)) == {done}
        assert await find(states=(RunState.RUNNING, RunState.FAILED), tenant="acme") == {nightly, parent, child}
        assert await find(labels={"team": "ops"}) == {nightly}
        assert await find(labels={"team": "dev", "a": "b"}) == set()
        assert await find(parent=parent) == {child}
        assert await find(parent="mine") == set()
        assert await find(since=now + HOUR) == set()
        assert await find(since=now - HOUR, until=now + HOUR) == {nightly, parent, other, done, child}
        assert await find(until=now - HOUR) == set()

    @case
    async def test_ended_runs_are_read_in_the_order_of_their_ends(self) -> None:
        driver = RunDriver(self.store())
        began = await driver.store.now_ms()
        runs = [await driver.start(_SLEEPS, tenant=tenant) for tenant in ("", "acme", "")]
        late, live = await driver.start(_WAITS), await driver.start(_WAITS)
        await driver.settle()
        await driver.runs.fire_timers()
        await driver.settle()
        await driver.send(late, NewInboxRow(kind="cancel", id="c"))
        ends = [(run.ended or 0, run.id) for run in [await driver.run(each) for each in (*runs, late)]]

        pages = [await driver.runs.ended_since(began, limit=3)]
        pages.append(await driver.runs.ended_since(pages[0][-1].ended or 0, after=pages[0][-1].id, limit=3))

        assert [(run.ended, run.id) for page in pages for run in page] == sorted(ends)
        assert [len(page) for page in pages] == [3, 1]
        assert await driver.runs.ended_since(max(ends)[0] + 1) == []
        await driver.send(late, NewInboxRow(kind="redrive", id="r"))
        found = {run.id for run in await driver.runs.ended_since(began)}
        assert found == {*runs}
        assert live not in found

    @case
    async def test_the_steps_of_several_runs_are_read_together(self) -> None:
        driver = RunDriver(self.store())
        ended = await driver.start(_SLEEPS)
        waiting = await driver.start(
            {"ok": {"wait": "go"}, "now": {"sleep": 0}, "each": {"task": "t", "each": [1, 2]}}
        )
        await driver.settle()
        await driver.runs.fire_timers()
        await driver.settle()

        found = await driver.runs.steps_of({waiting: ["each", "now"], ended: ["now", "ok"], "none": ["now"]})

        assert {run: {step.key: str(step.state) for step in steps} for run, steps in found.items()} == {
            waiting: {StepKey("each"): "running", StepKey("now"): "succeeded"},
            ended: {StepKey("now"): "succeeded"},
        }
        assert await driver.runs.steps_of({ended: []}) == {ended: []}
        assert await driver.runs.steps_of({}) == {}

    @case
    async def test_held_runs_are_found_among_the_running_ones(self) -> None:
        driver = RunDriver(self.store())
        held, running, cancelled = [await driver.start(_WAITS) for _ in range(3)]
        await driver.settle()
        await driver.send(held, NewInboxRow(kind="hold", id="h", error="disk full"))
        await driver.send(cancelled, NewInboxRow(kind="cancel", id="c"))

        async def find(*states: RunState) -> list[str]:
            page = await driver.runs.list_runs(RunFilter(states=states, is_held=True))
            return [run.id for run in page.runs]

        assert await find(RunState.RUNNING) == [held]
        assert await find(RunState.RUNNING, RunState.CANCELLED) == [cancelled, held]
        assert await find() == [cancelled, held]
        await driver.send(held, NewInboxRow(kind="release", id="r"))
        assert await find(RunState.RUNNING) == []
        assert (await driver.run(running)).state is RunState.RUNNING

    @case
    async def test_old_runs_are_deleted_with_their_contents_and_live_ones_stay(self) -> None:
        driver = RunDriver(self.store())
        store = driver.store
        assert isinstance(store, Prunable)
        wide = await driver.start({"each": {"task": "t", "each": list(range(600))}})
        live = await driver.start(_WAITS)
        await driver.settle()
        assert await driver.send(wide, NewInboxRow(kind="cancel", id="c")) == "accepted"
        versions = [(await driver.run(run)).version for run in (wide, live)]
        assert (await driver.run(wide)).ended is not None

        await self._prune(driver)

        assert await driver.runs.get(wide) is None
        assert await driver.runs.graph_text(versions[0]) is None
        assert await driver.runs.steps(wide) == []
        assert await driver.runs.children(wide, "each") == []
        assert await driver.runs.values(wide, []) == {}
        assert await driver.runs.run_value(wide) is None
        assert await driver.runs.answer(wide, "c") is None
        assert not await driver.runs.send(wide, NewInboxRow(kind="redrive"))
        assert (await driver.run(live)).state is RunState.RUNNING
        assert await driver.runs.graph_text(versions[1]) is not None
        assert [run.id for run in (await driver.runs.list_runs()).runs] == [live]

    @case
    async def test_the_content_of_a_workflow_outlives_its_runs(self) -> None:
        driver = RunDriver(self.store())
        content = content_of(_SLEEPS)
        kept = await driver.runs.put_workflow("", "w", content)
        runs = [await driver.start(workflow="w"), await driver.start(_SLEEPS, workflow="mine")]
        await driver.settle()
        await driver.runs.fire_timers()
        await driver.settle()

        await self._prune(driver)

        assert [await driver.runs.get(run) for run in runs] == [None, None]
        assert await driver.runs.graph_text(kept.version) == content
        assert await driver.runs.workflow("", "w") is not None

    @case
    async def test_a_tenant_is_erased_with_its_workflows_and_ended_runs(self) -> None:
        driver = RunDriver(self.store())
        store = driver.store
        assert isinstance(store, Retaining)
        await driver.runs.put_workflow("acme", "w", content_of(_SLEEPS))
        await driver.runs.put_workflow("other", "w", content_of(_SLEEPS))
        ended = await driver.start(workflow="w", tenant="acme")
        live = await driver.start(_WAITS, tenant="acme")
        other = await driver.start(workflow="w", tenant="other")
        await driver.settle()
        await driver.runs.fire_timers()
        await driver.settle()

        await store.forget_tenant("acme")

        assert await driver.runs.get(ended) is None
        assert await driver.runs.versions("acme", "w") == []
        assert await driver.runs.workflows("acme") == []
        assert (await driver.run(live)).state is RunState.RUNNING
        assert (await driver.run(other)).state is RunState.SUCCEEDED
        assert len(await driver.runs.versions("other", "w")) == 1

    @staticmethod
    async def _prune(driver: RunDriver) -> None:
        """Delete the ended runs."""
        assert isinstance(driver.store, Prunable)
        await driver.store.prune(keep_days=0)
