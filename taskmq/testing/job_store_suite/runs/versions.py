"""Tests of workflows and their versions."""

from taskmq.contracts.jobs import StoredVersion
from taskmq.errors import InvalidOption
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.runner import case, raises

__all__ = ["WorkflowVersions"]

_ONE = content_of({"s": {"task": "one"}})
_TWO = content_of({"s": {"task": "two"}})


class WorkflowVersions(JobStoreCase):
    """Contents and current versions of workflows."""

    @case
    async def test_new_content_becomes_the_current_version_and_known_content_changes_nothing(self) -> None:
        runs = self.store().runs

        first = await runs.put_workflow("acme", "w", _ONE)
        second = await runs.put_workflow("acme", "w", _TWO)
        again = await runs.put_workflow("acme", "w", _ONE)

        assert (first.is_new, first.is_current, second.is_new, second.is_current) == (True,) * 4
        assert again == StoredVersion(name="w", version=first.version, at=first.at, is_current=False)
        found = await runs.workflow("acme", "w")
        assert found is not None
        assert (found[0].version, found[1]) == (second.version, _TWO)
        assert await runs.workflow("acme", "w", first.version) == (again, _ONE)
        assert {(each.version, each.is_current) for each in await runs.versions("acme", "w")} == {
            (first.version, False),
            (second.version, True),
        }

    @case
    async def test_an_earlier_version_can_be_made_the_current_one(self) -> None:
        driver = RunDriver(self.store())
        first = await driver.runs.put_workflow("", "w", _ONE)
        await driver.runs.put_workflow("", "w", _TWO)
        before = await driver.start(workflow="w")

        assert await driver.runs.activate("", "w", "no such") is None
        assert (await driver.runs.activate("", "w", first.version)) == StoredVersion(
            name="w", version=first.version, at=first.at, is_current=True
        )

        await driver.settle()
        after = await driver.start(workflow="w")
        await driver.settle()
        tasks = [(await driver.read((await driver.step(run, "s")).job)).task for run in (before, after)]
        assert tasks == ["two", "one"]

    @case
    async def test_workflows_are_listed_by_tenant_and_name(self) -> None:
        runs = self.store().runs
        for tenant, name in (("acme", "b"), ("acme", "a"), ("", "c"), ("acme", "d")):
            await runs.put_workflow(tenant, name, _ONE)

        assert [each.name for each in await runs.workflows("acme")] == ["a", "b", "d"]
        assert [each.name for each in await runs.workflows("acme", after="a", limit=1)] == ["b"]
        assert [each.name for each in await runs.workflows(None)] == ["a", "b", "c", "d"]
        assert await runs.workflows("other") == []
        assert await runs.workflow("other", "a") is None
        assert await runs.versions("other", "a") == []
        assert await runs.graph_text("no such") is None

    @case
    async def test_content_that_is_no_workflow_is_refused(self) -> None:
        runs = self.store().runs

        with raises(InvalidOption):
            await runs.put_workflow("", "w", b"{}")
