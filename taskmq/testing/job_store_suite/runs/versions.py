"""Tests of workflows and their versions."""

from taskmq.contracts.jobs import NewInboxRow, StoredVersion
from taskmq.errors import InvalidOption
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.runner import case, raises

_ONE = content_of({"s": {"task": "one"}})
_TWO = content_of({"s": {"task": "two"}})
_BUILD = StepContent(task="build", builds=True)
_, _BUILT = encode_workflow(WorkflowContent(steps={"build": _BUILD}))
_, _BUILT_ALONE = encode_workflow(WorkflowContent(workflow="alone", steps={"build": _BUILD}))


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
    async def test_a_run_continues_with_the_graph_that_its_first_step_built(self) -> None:
        driver = RunDriver(self.store())
        stored = (await driver.runs.put_workflow("", "w", _BUILT)).version
        ids = [await driver.start(workflow="w"), await driver.start(workflow="alone", content=_BUILT_ALONE)]
        await driver.settle()
        versions = [(await driver.run(run_id)).version for run_id in ids]
        assert versions[0] == stored

        for run_id in ids:
            await driver.finish(run_id, "build", value={"steps": {"a": {"task": "a"}, "b": {"wait": "go"}}})
            assert (await driver.states(run_id))["a"] == "running"
            assert (await driver.run(run_id)).version not in versions
            await driver.send(run_id, NewInboxRow(kind="signal", id="1", name="go", value=b"2"))
            await driver.finish(run_id, "a", value=1)
            assert await driver.run_value(run_id) == {"a": 1, "b": 2}

        # A stored version keeps its content; that of a single run is deleted.
        assert await driver.runs.graph_text(stored) == _BUILT
        assert await driver.runs.graph_text(versions[1]) is None

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
    async def test_a_tenant_starts_its_own_workflow_or_else_the_shared_one(self) -> None:
        driver = RunDriver(self.store())
        shared = (await driver.runs.put_workflow("", "w", _ONE)).version
        await driver.runs.put_workflow("other", "own", _TWO)

        first = await driver.start(workflow="w", tenant="acme")
        own = (await driver.runs.put_workflow("acme", "w", _TWO)).version
        second = await driver.start(workflow="w", tenant="acme")
        pinned = await driver.start(workflow="w", tenant="acme", version=shared)
        foreign = [
            await driver.new_run(workflow="own", tenant="acme"),
            await driver.new_run(workflow="own", tenant="acme", version=own),
            await driver.new_run(workflow="own"),
            await driver.new_run(workflow="w", version=own),
        ]

        assert [(await driver.run(run)).version for run in (first, second, pinned)] == [shared, own, shared]
        assert (await driver.run(first)).tenant == "acme"
        assert all(each.refusal for each in await driver.runs.start(foreign))

    @case
    async def test_content_that_is_no_workflow_is_refused(self) -> None:
        runs = self.store().runs

        with raises(InvalidOption):
            await runs.put_workflow("", "w", b"{}")
