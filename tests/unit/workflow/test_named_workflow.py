"""Named workflows, whose graphs a job builds."""

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from taskmq import DuplicateTask, InvalidArguments, InvalidOption, RunFailed, TaskMQ, Workflow, batch, chain, group
from taskmq.model.keys import run_id_of
from taskmq.schedules.triggers import every
from taskmq.testing import Harness
from tests.servers.waiting import until
from tests.unit.app_kit import new_store, new_url
from tests.unit.workflow.shop import Shop

if TYPE_CHECKING:
    from decimal import Decimal

pytestmark = pytest.mark.real_time

_DAY = date(2027, 1, 31)


class Calendar(Shop):
    """A shop with named workflows."""

    def __init__(self) -> None:
        super().__init__()
        app, total = self.app, self.total
        add: Any = self.add

        @app.task(name="length", retry=None)
        async def length(day: date, weeks: int) -> int:
            return day.toordinal() * weeks

        @app.workflow
        def weekly(day: date, weeks: int = 2) -> Workflow[int]:
            """Add up a few weeks."""
            lengths = [length.s(day + timedelta(weeks=number), 1) for number in range(weeks)]
            return chain(group(lengths), total.s())

        @app.workflow(name="wrong", queue="other")
        def wrong(kind: str) -> Workflow[Any]:
            found: dict[str, Any] = {"batch": batch(length.s(_DAY, 1)), "text": "a graph", "call": add.s("x")}
            return found[kind]  # type: ignore[no-any-return]

        self.weekly: Any = weekly
        self.wrong: Any = wrong

    async def is_stored(self, name: str) -> bool:
        return await self.app.sessions.store().runs.workflow("", name) is not None


@pytest.fixture
def shop() -> Calendar:
    return Calendar()


async def test_a_job_builds_the_graph_from_the_parameters(shop: Calendar) -> None:
    async with shop.open():
        run = await shop.weekly.asend(_DAY)
        assert await run.aresult(60) == 2 * _DAY.toordinal() + 7
        steps = {step.name: step.after for step in await run.asteps()}
        assert steps == {
            "build_graph": (),
            "length": ("build_graph",),
            "length-2": ("build_graph",),
            "total": ("length", "length-2"),
        }
        record = await run.aget()
        assert record.workflow == "weekly"
        assert msgspec.json.decode(record.params) == {"day": "2027-01-31", "weeks": 2}


async def test_a_run_is_started_by_name_without_the_code(shop: Calendar) -> None:
    async with shop.open():
        await until(lambda: shop.is_stored("weekly"))
        async with TaskMQ(new_url(), store=shop.app.sessions.store_url) as other:
            run = await other.runs.astart("weekly", {"day": "2027-01-31", "weeks": 3})
            assert await run.aresult(60) == 3 * _DAY.toordinal() + 21


async def test_the_stored_version_has_the_schemas_of_the_parameters(shop: Calendar) -> None:
    async with shop.open():
        await until(lambda: shop.is_stored("wrong"))
        found = await shop.app.sessions.store().runs.workflow("", "weekly")
        assert found is not None
        content = msgspec.json.decode(found[1])
        assert content["params"] == {
            "day": {"type": "string", "format": "date"},
            "weeks": {"type": "integer", "default": 2},
        }
        run = await shop.weekly.asend(_DAY, weeks=1)
        # Both a caller with the code and one without begin with the same version.
        assert msgspec.json.decode((await run.aget()).params) == {"day": "2027-01-31", "weeks": 1}


async def test_options_name_the_run_its_tenant_and_its_labels(shop: Calendar) -> None:
    async with shop.open():
        call = shop.weekly.options(run_id="january", tenant="acme", labels={"team": "ops"})
        run = await call.asend(_DAY, 1)
        assert run.id == "@acme:january"
        assert (await call.asend(_DAY, 3)).id == run.id
        assert await run.aresult(60) == _DAY.toordinal()
        record = await shop.app.sessions.store().runs.get(run_id_of(run.id))
        assert record is not None
        assert (record.tenant, record.labels) == ("acme", {"team": "ops"})


async def test_a_function_that_returns_no_graph_fails_the_run_at_once(shop: Calendar) -> None:
    async with shop.open():
        for kind, said in (
            ("batch", "workflow wrong: return a step, a chain, a group or a dag, not <"),
            ("text", "workflow wrong: return a step, a chain, a group or a dag, not 'a graph'"),
            ("call", "workflow wrong: task add: "),
        ):
            with pytest.raises(RunFailed, match="build_graph") as caught:
                await (await shop.wrong.asend(kind)).aresult(60)
            assert said in str(caught.value.failures)


async def test_wrong_arguments_are_refused_before_a_run_starts(shop: Calendar) -> None:
    async with shop.app:
        with pytest.raises(InvalidArguments, match="'day' is missing"):
            await shop.weekly.asend()
        with pytest.raises(InvalidOption, match="run_id="):
            shop.weekly.options(run_id="a b")


def test_a_workflow_is_called_here_like_its_function(shop: Calendar) -> None:
    graph = shop.weekly(_DAY, weeks=1)
    assert isinstance(graph, Workflow)
    assert list(graph.plan().content.steps) == ["length", "total"]
    assert shop.weekly.__doc__ == "Add up a few weeks."
    assert repr(shop.weekly) == "<NamedWorkflow weekly>"
    assert list(shop.app.workflows) == ["weekly", "wrong"]
    assert len(shop.app.workflows) == 2
    assert shop.app.workflows["weekly"] is shop.weekly


def test_a_workflow_with_a_definition_that_cannot_work_is_refused(shop: Calendar) -> None:
    app = TaskMQ(new_url(), store=new_store())

    async def no_function() -> Workflow[int]:
        return shop.add.s(1)

    def no_names(*days: date) -> Workflow[int]:
        return shop.add.s(len(days))

    def no_default(day: object = _DAY.toordinal) -> Workflow[int]:
        return shop.add.s(1)

    def no_type(day: "Decimal") -> Workflow[int]:
        return shop.add.s(1)

    def weekly() -> Workflow[int]:
        return shop.add.s(1)

    def monthly() -> Workflow[int]:
        return shop.add.s(4)

    wrong: list[tuple[Any, str]] = [
        (no_function, "use a plain function"),
        (no_names, "its parameters are passed by name"),
        (no_default, "the default of parameter 'day' has no form in JSON"),
        (no_type, "an annotation cannot be resolved"),
    ]
    for function, said in wrong:
        with pytest.raises(InvalidOption, match=said):
            app.workflow(function)
    app.workflow(name="w")(weekly)
    with pytest.raises(InvalidOption, match="workflow 'w' is defined twice"):
        app.workflow(name="w")(lambda: shop.add.s(1))
    with pytest.raises(InvalidOption, match="no name"):
        app.workflow(name="no name")(monthly)
    with pytest.raises(DuplicateTask):
        app.workflow(weekly)


def test_schedules_in_code_start_named_workflows_and_chains() -> None:
    app = TaskMQ(new_url(), store=new_store())

    @app.task(name="add", retry=None)
    def add(number: int, other: int) -> int:
        return number + other

    @app.every("1h")
    @app.workflow
    def hourly(number: int = 3) -> Workflow[int]:
        return add.s(number, 1)

    app.cron("0 * * * *", name="chain")(add.s(1, 2) | add.s(3))
    with Harness(app, start=datetime(2027, 1, 31, 11, 30, tzinfo=UTC)) as harness:
        harness.advance("1h")
        runs = {run.workflow: run.id for run in app.runs.list().lines}
        assert {name: app.runs.get(run_id).result() for name, run_id in runs.items()} == {"hourly": 4, "chain": 6}
        assert msgspec.json.decode(app.runs.get(runs["hourly"]).get().params) == {"number": 3}

        app.schedules.add("again", hourly, every("1h"), kwargs={"number": 5})
        harness.advance("1h")
        (run,) = [run for run in app.runs.list().lines if app.runs.get(run.id).get().labels == {"schedule": "again"}]
        assert app.runs.get(run.id).result() == 6


def test_a_schedule_that_cannot_start_a_workflow_is_refused() -> None:
    app = TaskMQ(new_url(), store=new_store())

    @app.task(name="add", retry=None)
    def add(number: int, other: int) -> int:
        return number + other

    @app.workflow
    def hourly(number: int) -> Workflow[int]:
        return add.s(number, 1)

    with pytest.raises(InvalidOption, match="the workflow must run without arguments: "):
        app.every("1h")(hourly)
    with pytest.raises(InvalidOption, match="give it a name="):
        app.every("1h")(add.s(1, 2) | add.s(3))


def test_a_workflow_that_limits_its_runs_says_so_in_its_content() -> None:
    @TaskMQ(new_url()).workflow(max_active_runs=2)
    def build() -> Workflow[Any]:
        raise AssertionError("no run builds it")

    assert build.content.max_active_runs == 2
    with pytest.raises(InvalidOption, match="max_active_runs=0: must be from 1 to 10000"):
        TaskMQ(new_url()).workflow(max_active_runs=0)(build.function)
