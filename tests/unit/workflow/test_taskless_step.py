"""Waits, sleeps, subworkflows and conditions in workflows that Python writes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmq import EncodeError, InvalidArguments, InvalidOption, Workflow, dag, sleep, subworkflow, wait
from taskmq.model.runs.graphs import StepContent
from tests.servers.waiting import until
from tests.unit.workflow.shop import Shop

pytestmark = pytest.mark.real_time


@dataclass
class Approval:
    """An answer of a person."""

    ok: bool
    extra: int = 0


class Office(Shop):
    """A shop with a named workflow, and a task that takes an approval."""

    def __init__(self) -> None:
        super().__init__()

        @self.app.task(name="book", retry=None)
        async def book(approval: Approval, amount: int) -> int:
            return approval.extra + amount

        @self.app.workflow(name="sums")
        def sums(number: int, text: str = "${x}") -> Workflow[int]:
            return self.add.s(number, len(text))

        self.book, self.sums = book, sums


@pytest.fixture
def shop() -> Office:
    return Office()


def _steps(workflow: Workflow[Any]) -> dict[str, StepContent]:
    return workflow.plan().content.steps


async def test_a_signal_is_the_value_that_the_next_step_gets(shop: Office) -> None:
    approval = wait("approval", Approval, timeout="2d", roles=["operator"])
    graph = shop.add.s(1) | approval | shop.book.s(5).when("steps.approval.result.ok and steps.add.result == 2")
    found = _steps(graph)["approval"]
    assert (found.wait, found.roles, found.timeout, found.needs) == ("approval", ("operator",), "2d", ("add",))
    assert found.form is not None
    assert found.form["properties"] == {"ok": {"type": "boolean"}, "extra": {"type": "integer", "default": 0}}

    async with shop.open():
        free = shop.add.s(1) | wait("approval", Approval) | shop.book.s(5).when("steps.approval.result.ok")
        runs = [await free.asend(), await free.asend()]
        await runs[0].asignal("approval", {"ok": True, "extra": 7})
        await runs[1].asignal("approval", {"ok": False})
        assert [await run.aresult(60) for run in runs] == [12, None]
        assert (await runs[1].astate()).steps["book"] == "skipped"


async def test_a_signal_that_does_not_fit_the_form_of_its_step_is_refused(shop: Office) -> None:
    async with shop.open():
        run = await (shop.add.s(1) | wait("approval", Approval) | shop.book.s(5)).asend()

        with pytest.raises(
            InvalidArguments, match=r"signal 'approval' does not fit its form: step approval: .*boolean"
        ):
            await run.asignal("approval", {"ok": "yes"}, signal_id="one")
        await run.asignal("approval", {"ok": True, "extra": 7}, signal_id="one")

        assert await run.aresult(60) == 12


async def test_a_wait_without_a_signal_ends_as_it_says(shop: Office) -> None:
    async with shop.open():
        late = shop.add.s(1) | wait("late", Approval, timeout="10ms", default=Approval(ok=False, extra=3))
        assert await (await (late | shop.book.s(1)).asend()).aresult(60) == 4
        skipped = await (shop.add.s(1) | wait("late", timeout=timedelta(milliseconds=10), on_timeout="skip")).asend()
        assert await skipped.aresult(60) is None


async def test_a_sleep_delays_the_next_step(shop: Office) -> None:
    async with shop.open():
        soon = datetime.now(UTC) + timedelta(milliseconds=50)
        run = await (shop.add.s(1) | sleep("10ms") | sleep(soon, name="until") | shop.add.si(5)).asend()
        assert await run.aresult(60) == 6
        steps = {step.name: step for step in await run.asteps()}
        assert list(steps) == ["add", "sleep", "until", "add-2"]
        started = steps["add-2"].started
        assert started is not None
        assert started >= soon.timestamp() * 1000


async def test_a_subworkflow_runs_a_stored_workflow_with_parameters(shop: Office) -> None:
    async with shop.open():
        runs = shop.app.sessions.store().runs

        async def is_stored() -> bool:
            return await runs.workflow("", "sums") is not None

        await until(is_stored)
        assert await (await subworkflow(shop.sums, 3).asend()).aresult(60) == 7
        graph = dag()
        number = graph.add(shop.add.s(1), name="number")
        inner = graph.add(subworkflow("sums", text="abc"), into={"number": number}, name="inner")
        run = await graph.asend()
        assert await run.aresult(60) == {"inner": 5}
        assert await run.aresult_of(inner) == 5


def test_a_graph_names_steps_without_a_task_and_gives_them_rules(shop: Office) -> None:
    graph = dag()
    first = graph.add(shop.named.s("a"))
    go = graph.add(wait("go.now"), after=[first], rule="always")
    graph.add(sleep(3), after=[go])
    graph.add(subworkflow(shop.sums, 1), after=[go], rule="none_failed")
    found = _steps(graph)
    assert {name: step.needs for name, step in found.items()} == {
        "named": (),
        "go_now": ("named",),
        "sleep": ("go_now",),
        "sums": ("go_now",),
    }
    assert (found["go_now"].rule, found["sums"].rule) == ("all_done", "none_failed")
    assert found["sums"].arguments == {"number": 1}
    assert _steps(subworkflow("sums", text="${x}"))["sums"].arguments == {"text": "$${x}"}
    with pytest.raises(InvalidOption, match="this step has no parameters"):
        graph.add(sleep(3), into={"x": first})


def test_a_condition_stays_with_its_step(shop: Office) -> None:
    numbers = shop.numbers.s(3)
    each = shop.add.s().each(limit=2).when("steps.numbers.result != []").options(queue="q")
    found = _steps(numbers | each)["add"]
    assert (found.condition, found.limit, found.options) == ("steps.numbers.result != []", 2, {"queue": "q"})
    assert _steps(shop.add.s(1).when("true"))["add"].condition == "true"
    assert _steps(shop.add.s(1) | sleep(1).when("steps.add.result > 1"))["sleep"].condition


def test_a_step_that_cannot_work_is_refused_when_it_is_written(shop: Office) -> None:
    number = shop.add.s(1)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: number.when("steps..a"), r"when\('steps..a'\): "),
        ((number | shop.add.s().when("steps.ad.result")).plan, "'ad' does not run before this one"),
        (lambda: wait(""), "give the name of a signal"),
        (lambda: wait("go", roles=["operators"]), "no role 'operators': did you mean 'operator'"),
        (lambda: wait("go", default=1), "need a timeout="),
        (lambda: wait("go", on_timeout="skip"), "need a timeout="),
        (lambda: wait("go", timeout="soon"), "timeout"),
        (lambda: sleep("soon"), "sleep"),
        (lambda: sleep(datetime.now(UTC).replace(tzinfo=None)), "a datetime with a time zone"),
    ]
    for make, said in wrong:
        with pytest.raises(InvalidOption, match=said):
            make()


def test_values_that_do_not_fit_their_types_are_refused(shop: Office) -> None:
    with pytest.raises(EncodeError):
        wait("go", int, timeout=1, default="x")
    with pytest.raises(InvalidArguments, match="'number' is missing"):
        subworkflow(shop.sums)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
