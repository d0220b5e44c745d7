"""Contents of runs, built from written workflows."""

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import InvalidArguments, InvalidOption, TaskMQ, batch, chord, dag, group, sleep, subworkflow, wait
from taskmq.errors import EncodeError
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow, load_graph
from taskmq.model.runs.records import InboxRow
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.validation import validate_workflow
from taskmq.model.topology import WorkQueue
from taskmq.model.values.return_type import ReturnType
from taskmq.testing.run_model import RunModel
from taskmq.workflow.model.contents import RunPlan, batch_call
from taskmq.workflow.parts import Chain, Workflow
from taskmq.workflow.shapes import ListOf
from tests.unit.app_kit import new_url

_LONG = "l" * 1_001

app = TaskMQ(new_url(), queues=[WorkQueue("line", ordered=4)])


@app.task(name="shop.one", queue="q")
def one(path: str) -> int:
    return len(path)


@app.task(name="shop.two")
def two(number: int, by: int = 1) -> int:
    return number * by


@app.task(name="shop.many")
def many(numbers: list[int]) -> list[int]:
    return numbers


@app.task(name="lined", queue="line", order_key="key")
def lined(key: str) -> None: ...


@app.task(name="any.thing", priority=3)
def anything(*args: Any, **kwargs: Any) -> Any: ...


@app.task(name="breaks")
def breaks(*args: Any, **kwargs: Any) -> Any: ...


def _steps(plan: RunPlan) -> dict[str, StepContent]:
    """Return the steps of a plan, whose content is valid."""
    _, faults = validate_workflow(msgspec.to_builtins(plan.content))
    assert not faults
    return plan.content.steps


def test_a_chain_passes_each_value_as_the_first_argument_of_the_next_step() -> None:
    plan = (one.s("abc") | two.s(by=3) | two.si(7) | two.s()).plan()
    steps = _steps(plan)

    assert [*steps] == ["one", "two", "two-2", "two-3"]
    assert steps["one"] == StepContent(task="shop.one", args=("abc",), needs=(), options={"queue": "q"})
    assert steps["two"] == StepContent(
        task="shop.two", args=("${steps.one.result}",), arguments={"by": 3}, needs=("one",)
    )
    assert steps["two-2"] == StepContent(task="shop.two", args=(7,), needs=("two",))
    assert plan.content.output == "${steps.two-3.result}"
    assert isinstance(plan.shape, ReturnType)


def test_a_chord_passes_the_list_of_values() -> None:
    plan = chord([two.s(1), one.s("a") | two.s()], many.s()).plan()

    assert _steps(plan)["many"].args == (["${steps.two.result}", "${steps.two-2.result}"],)
    assert _steps(plan)["many"].needs == ("two", "two-2")


def test_a_group_behind_a_group_gets_one_joined_value() -> None:
    plan = (group(two.s(1), two.s(2)) | group(many.s(), many.s())).plan()
    steps = _steps(plan)

    assert steps["join"] == StepContent(
        value=["${steps.two.result}", "${steps.two-2.result}"], needs=("two", "two-2")
    )
    assert steps["many"].args == steps["many-2"].args == ("${steps.join.result}",)
    assert plan.content.output == ["${steps.many.result}", "${steps.many-2.result}"]


def test_groups_without_members_pass_empty_lists() -> None:
    assert _steps((two.map([]) | many.s()).plan())["many"] == StepContent(task="shop.many", args=([],), needs=())
    plan = (two.s(1) | group() | many.s()).plan()
    assert _steps(plan)["many"] == StepContent(task="shop.many", args=([],), needs=("two",))
    nothing = two.map([]).plan()
    assert (nothing.content.output, [*_steps(nothing)]) == ([], ["join"])


def test_each_goes_over_the_value_before_it() -> None:
    plan = (many.s([1]) | two.s(by=2).each(limit=3, max_width=9) | many.s()).plan()

    assert _steps(plan)["two"] == StepContent(
        task="shop.two",
        each="${steps.many.result}",
        limit=3,
        max_width=9,
        arguments={"by": 2},
        needs=("many",),
    )
    assert isinstance((many.s([1]) | two.s().each()).plan().shape, ListOf)
    with pytest.raises(InvalidOption, match="comes after one step"):
        Chain[Any]((two.s().each(),)).plan()
    with pytest.raises(InvalidOption, match="max_width=200000: must be at most 100000"):
        (many.s([1]) | two.s().each(max_width=200_000)).plan()


def test_a_graph_has_its_names_rules_and_leaves() -> None:
    flow = dag()
    first = flow.add(one.s("a"), name="first")
    second = flow.add(two.s(), after=[first], name="one", may_fail=True)
    third = flow.add(two.s(), into={"by": second, "number": first}, rule="always")
    pair = flow.add(group(two.si(1), two.si(2)), after=[second], may_fail=True)
    flow.add(one.s("b") | two.s(), after=[third])
    flow.add(many.s(), after=[pair], rule="any", name="last")
    plan = flow.plan()
    steps = _steps(plan)

    assert [*steps] == ["first", "one", "two", "two-2", "two-3", "group", "one-2", "chain", "last"]
    assert (steps["one"].rule, steps["one"].may_fail) == ("all_success", True)
    assert (steps["two"].rule, steps["two"].needs) == ("all_done", ("one", "first"))
    assert steps["two"].arguments == {"by": "${steps.one.result}", "number": "${steps.first.result}"}
    assert steps["group"].needs == ("two-2", "two-3")
    assert (steps["last"].rule, steps["last"].needs) == ("one_success", ("group",))
    assert steps["last"].args == (["${steps.two-2.result}", "${steps.two-3.result}"],)
    assert [name for name, step in steps.items() if step.may_fail] == ["one", "two-2", "two-3", "group"]
    assert plan.content.output == {"chain": "${steps.chain.result}", "last": "${steps.last.result}"}


def test_a_node_that_could_never_run_or_be_found_is_refused() -> None:
    flow, other = dag(), dag()
    first, stranger = flow.add(one.s("a"), name="first"), other.add(one.s("a"))

    with pytest.raises(InvalidOption, match="node 'first' is defined twice"):
        flow.add(one.s("b"), name="first")
    with pytest.raises(InvalidOption, match="node 'alone': rule='any' needs nodes to wait for"):
        flow.add(one.s("b"), name="alone", rule="any")
    with pytest.raises(InvalidOption, match="belongs to another graph"):
        flow.add(two.s(), after=[stranger])
    with pytest.raises(InvalidOption, match="rule='most': one of"):
        flow.add(two.s(), after=[first], rule="most")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="are for one step"):
        flow.add(one.s("b") | two.s(), after=[first], rule="any")
    assert [*_steps(flow.plan())] == ["first"]


def test_a_name_that_no_path_can_have_is_refused() -> None:
    flow = dag()
    flow.add(one.s("a"), name="the first")

    with pytest.raises(InvalidOption, match="name='the first': use letters"):
        flow.plan()


@pytest.mark.parametrize(
    "build",
    [
        lambda: one.s("a") | wait(_LONG),
        lambda: one.s("a") | wait("signal", name=_LONG),
        lambda: one.s("a") | sleep("1s", name=_LONG),
        lambda: one.s("a") | subworkflow(_LONG),
        lambda: group([wait(_LONG[1:]), wait(_LONG[1:])]),
        lambda: _named_graph(_LONG),
    ],
)
def test_a_step_with_a_long_name_is_refused_with_the_beginning_of_the_name(build: Callable[[], Any]) -> None:
    with pytest.raises(InvalidOption, match=r"^name='l{80}': it has 1,00[12] characters, and at most 1,000"):
        build().plan()


def _named_graph(name: str) -> Workflow[Any]:
    flow = dag()
    flow.add(one.s("a"), name=name)
    return flow


def test_a_name_of_1000_characters_is_a_steps_name() -> None:
    assert list(_steps((one.s("a") | wait(_LONG[1:])).plan())) == ["one", _LONG[1:]]


def test_a_batch_is_a_step_with_callbacks_behind_it() -> None:
    plan = batch(two.s(1), on_success=many.s(), on_end=one.si("end"), limit=5).plan()

    assert _steps(plan) == {
        "jobs": StepContent(batch=True, limit=5),
        "many": StepContent(task="shop.many", args=("${steps.jobs.result}",), needs=("jobs",)),
        "one": StepContent(task="shop.one", args=("end",), needs=("jobs",), rule="all_done", options={"queue": "q"}),
    }
    assert plan.content.output == "${steps.jobs.result}"
    call = two.s(1, by=2).options(priority=8).call
    assert msgspec.json.decode(batch_call(call)) == {
        "task": "shop.two",
        "args": [1],
        "kwargs": {"by": 2},
        "options": {"priority": 8},
    }


def test_options_of_a_step_are_those_of_its_call() -> None:
    step = two.options(queue="slow").s(1).options(delay="2s", max_attempts=3)

    assert _steps(step.plan())["two"].options == {"queue": "slow", "delay": 2.0, "max_attempts": 3}
    assert _steps(anything.s(1).options(priority=None).plan())["thing"].options == {"priority": None}


def test_an_order_key_comes_from_arguments_that_are_known() -> None:
    assert _steps(lined.s("x").plan())["lined"].options == {"queue": "line", "order_key": "x"}
    assert _steps((anything.s() | lined.s()).plan())["lined"].options == {"queue": "line"}
    fixed = (anything.s() | lined.s().options(order_key="k")).plan()
    assert _steps(fixed)["lined"].options == {"queue": "line", "order_key": "k"}


def test_impossible_steps_are_refused() -> None:
    @app.task(name="unique", unique=True)
    def unique() -> None: ...

    with pytest.raises(InvalidOption, match="unique= could leave a step without a job"):
        unique.s().plan()
    with pytest.raises(InvalidOption, match="job_id is not for steps"):
        one.s("a").options(job_id="x").plan()
    with pytest.raises(InvalidOption, match="headers= belong to a message"):
        one.s("a").options(headers={"a": "b"}).plan()
    with pytest.raises(InvalidArguments, match="no step before this one gives it more"):
        Chain[Any]((two.s(),)).plan()
    with pytest.raises(EncodeError, match="'args\\[1\\]'"):
        anything.s(1, float("nan")).plan()
    with pytest.raises(EncodeError, match="cannot be encoded"):
        (anything.s() | anything.s(object())).plan()
    with pytest.raises(InvalidOption, match="a workflow of 10,001 steps, and at most 10,000"):
        two.map(range(10_001)).plan()


def test_names_of_tasks_become_names_of_steps() -> None:
    @app.task(name="a.9:b")
    def odd() -> None: ...

    assert [*_steps((odd.s() | odd.si()).plan())] == ["_9_b", "_9_b-2"]


@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.sampled_from(["${x}", "$${", "a ${params.b}", "$"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_arguments_arrive_as_they_were_given(value: Any) -> None:
    run = _run_new(anything.s(value, key=value).plan(), Random(0))

    assert run.steps["thing"].call == ([value], {"key": value})


@pytest.mark.simulation
@given(seed=st.integers(0, 2**32))
def test_the_run_of_a_random_workflow_ends(seed: int) -> None:
    random = Random(seed)
    workflow = _random_dag(random) if random.random() < 0.5 else _random_part(random, 3)

    run = _run_new(workflow.plan(), random)

    assert all(step.state.has_ended for step in run.steps.values())


def _random_part(random: Random, depth: int) -> Workflow[Any]:
    task = random.choice((anything, anything, anything, anything, anything, anything, breaks))
    kind = random.choice(("step", "step", "chain", "group", "map", "chord")) if depth else "step"
    match kind:
        case "step":
            args = [random.choice((1, "x", None, "${steps.a.result}")) for _ in range(random.randint(0, 2))]
            make: Any = random.choice((task.s, task.s, task.si))
            return cast("Workflow[Any]", make(*args, **random.choice(({}, {"k": 5}))))
        case "chain":
            part: Workflow[Any] = _random_part(random, depth - 1)
            for _ in range(random.randint(1, 3)):
                each = task.s(random.randint(0, 9)).each(limit=random.choice((None, 1, 2)))
                following: Any = random.choice((each, _random_part(random, depth - 1)))
                part = part | following
            return part
        case "group":
            return group(_random_part(random, depth - 1) for _ in range(random.randint(0, 3)))
        case "map":
            calls: Workflow[Any] = task.starmap((number,) for number in range(random.randint(0, 3)))
            return calls
        case _:
            return chord([_random_part(random, depth - 1) for _ in range(random.randint(0, 3))], task.s())


def _random_dag(random: Random) -> Workflow[Any]:
    flow, nodes = dag(), list[Any]()
    for _ in range(random.randint(1, 6)):
        after = random.sample(nodes, random.randint(0, min(3, len(nodes))))
        may_fail = random.random() < 0.5
        if random.random() < 0.4:
            nodes.append(flow.add(_random_part(random, 2), after=after, may_fail=may_fail))
            continue
        # What `any` passes depends on which step ends first.
        rule: Any = random.choice(("all", "none_failed", "always", *(("any",) if after else ())))
        task = random.choice((anything, anything, anything, breaks))
        part = task.si(1) if rule == "any" else task.s(2)
        into = {"a": random.choice(nodes)} if nodes and rule != "any" and random.random() < 0.3 else None
        nodes.append(flow.add(part, after=after, into=into, rule=rule, may_fail=may_fail))
    return flow


def _digest(call: Any) -> str:
    args, kwargs = call
    return hashlib.sha256(msgspec.json.encode([args, kwargs], order="deterministic")).hexdigest()[:8]


def _result(call: Any) -> list[str]:
    return [_digest(call), "x"]


def _run_new(plan: RunPlan, random: Random) -> RunModel:
    """Run the content of a plan in the model, ending its jobs in any order."""
    graph = load_graph(encode_workflow(WorkflowContent(steps=plan.content.steps, output=plan.content.output))[1])
    run = RunModel(graph, {})
    while not run.has_ended:
        running = {key: step for key, step in run.running().items() if step.call is not None and step.items is None}
        key = random.choice([*running])
        step, task = running[key], graph.step(key.name).task
        state = StepState.FAILED if task == "breaks" else StepState.SUCCEEDED
        value = msgspec.json.encode(_result(step.call))
        run.apply(
            InboxRow(number=0, kind="end", step=key.name, child=key.child, state=state, value=value, generation=0)
        )
    return run
