"""Tests of the figures of runs that alert rules watch."""

from statistics import median_low
from typing import Any

from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.history.alerts import MOST_USUAL
from taskmq.model.history.run_figures import RunFigures
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case

_WAITS: dict[str, Any] = {"ok": {"wait": "go"}}


class RunFigureCases(JobStoreCase):
    """Counts of failed runs, durations, and runs that are due."""

    @case
    async def test_failed_runs_are_counted_by_tenant_and_workflow(self) -> None:
        driver = RunDriver(self.store())
        began = await driver.store.now_ms()
        for tenant, workflow, count in (("", "a", 2), ("acme", "a", 1), ("acme", "b", 3)):
            for _ in range(count):
                await driver.start({"s": {"task": "refused"}}, tenant=tenant, workflow=workflow)
        await driver.settle()
        await driver.start(_WAITS, workflow="c")
        last = max(one.ended or 0 for one in driver.ended)

        async def count_failed(tenant: str | None, since: int) -> dict[tuple[str, str], int]:
            return {(one.tenant, one.workflow): one.failed for one in await driver.runs.figures(tenant, since)}

        of_acme = {("acme", "a"): 1, ("acme", "b"): 3}
        assert await count_failed("acme", began) == of_acme
        assert await count_failed("", began) == {("", "a"): 2, ("", "c"): 0}
        assert await count_failed(None, began) == {("", "a"): 2, ("", "c"): 0, **of_acme}
        assert await count_failed("other", began) == {}
        assert await count_failed("acme", last + 1) == dict.fromkeys(of_acme, 0)

    @case
    async def test_figures_are_read_in_pages_by_tenant_and_workflow(self) -> None:
        driver = RunDriver(self.store())
        names = [("", "a"), ("", "b"), ("acme", "B"), ("acme", "a"), ("b", "a")]
        for tenant, workflow in reversed(names):
            for _ in range(2):
                await driver.start(_WAITS, tenant=tenant, workflow=workflow)

        pages = [await driver.runs.figures(None, 0, after=after, limit=2) for after in (None, names[1], names[3])]
        of_acme = await driver.runs.figures("acme", 0, limit=1)
        of_acme += await driver.runs.figures("acme", 0, after=("acme", "B"))

        assert [[(one.tenant, one.workflow) for one in page] for page in pages] == [names[:2], names[2:4], names[4:]]
        assert [(one.tenant, one.workflow) for one in of_acme] == names[2:4]
        assert await driver.runs.figures(None, 0, after=names[-1]) == []

    @case
    async def test_durations_are_compared_with_those_of_earlier_runs(self) -> None:
        driver = RunDriver(self.store())
        runs = [await driver.start(_WAITS) for _ in range(MOST_USUAL + 3)]
        await driver.settle()
        for run in runs:
            await driver.send(run, NewInboxRow(kind="signal", id="go", name="go"))
        ended = [await driver.run(run) for run in runs]
        failed = await driver.start({"s": {"task": "refused"}})
        cancelled, live = await driver.start(_WAITS), await driver.start(_WAITS)
        await driver.settle()
        await driver.send(cancelled, NewInboxRow(kind="cancel", id="c"))
        ends = sorted((run.ended or 0, (run.ended or 0) - run.created) for run in ended)
        after = await driver.run(failed)

        for since in (ends[0][0], ends[1][0], ends[-1][0], ends[-1][0] + 1):
            (one,) = await driver.runs.figures("", since)
            before = [lasted for end, lasted in ends if end < since][-MOST_USUAL:]
            within = [
                lasted
                for end, lasted in [*ends, (after.ended or 0, (after.ended or 0) - after.created)]
                if end >= since
            ]
            assert one.earlier == len(before)
            assert one.usual == (median_low(before) if before else None)
            assert one.longest == max(within, default=None)
            assert one.oldest == (await driver.run(live)).created

    @case
    async def test_a_run_is_due_until_it_has_ended(self) -> None:
        driver = RunDriver(self.store())
        first = await driver.start(_WAITS, due=5)
        second = await driver.start(_WAITS, due=7)
        await driver.start(_WAITS)
        await driver.settle()

        async def due() -> int | None:
            (one,) = await driver.runs.figures("", 0)
            return one.due

        assert await due() == 5
        await driver.send(first, NewInboxRow(kind="cancel", id="c"))
        assert await due() == 7
        await driver.send(second, NewInboxRow(kind="cancel", id="c"))
        assert await due() is None
        await driver.send(first, NewInboxRow(kind="redrive", id="r"))
        assert await due() == 5

    @case
    async def test_a_workflow_without_runs_has_no_figures(self) -> None:
        driver = RunDriver(self.store())
        assert await driver.runs.figures(None, 0) == []
        run = await driver.start(_WAITS, workflow="w", tenant="acme")

        created = (await driver.run(run)).created
        assert await driver.runs.figures(None, 0) == [RunFigures(tenant="acme", workflow="w", oldest=created)]
