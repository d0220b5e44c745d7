"""Steps, chains, groups and graphs."""

from typing import Any, assert_type

from taskmq import Context, Run, RunStatus, TaskMQ, Workflow, chain, chord, dag, group, sleep, subworkflow, wait
from taskmq.workflow.step_call import GraphNode
from taskmq.workflow.taskless_step import TasklessStep

app = TaskMQ("memory://")


@app.task
def load(path: str) -> list[int]:
    return [len(path)]


@app.task
async def double(number: int, by: int = 2) -> int:
    return number * by


@app.task
async def add(ctx: Context, number: int, other: int) -> float:
    return number + other


@app.task
def total(numbers: list[int]) -> str:
    return str(sum(numbers))


assert_type(load.si("a").send(), Run[list[int]])
assert_type(load.s("a").options(queue="q", max_attempts=3).send(), Run[list[int]])
assert_type(double.options(priority=9).s(1, by=3).send().result(), int)
assert_type(double.s(1).send(run_id="a").state(), RunStatus)

load.si()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
load.si(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
load.s("a").options(job="b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
total.s().send()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

# One after the other

assert_type((double.s(1) | double.s() | add.s(4)).send().result(), float)
assert_type(chain(load.s("a"), total.s()).send().result(), str)
assert_type(load.s("a").then(total.s()).then(load.s()).send().result(), list[int])
assert_type(chain(load.s("a"), double.si(1)).send(), Run[int])

_ = load.s("a") | double.s()  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
load.s("a").then(load.s())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

assert_type(group(double.s(1), double.s(2)).send().result(), list[int])
assert_type(group(double.s(number) for number in range(3)).send().result(), list[int])
assert_type(chord([double.s(1), double.s(2)], total.s()).send().result(), str)
assert_type((group(double.s(1)) | total.s()).send().result(), str)
assert_type(double.map([1, 2]).send().result(), list[int])
assert_type(double.starmap([(1, 2)]).then(total.s()).send().result(), str)
assert_type(total.chunks(range(10), 3).send().result(), list[str])
assert_type((load.s("a") | double.s().each(limit=3) | total.s()).send().result(), str)

double.map(["a"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
_ = double.s(1) | double.s().each()  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]

flow = dag()
first = flow.add(load.s("a"))
second = flow.add(total.s(), after=[first], rule="any", name="total")
third = flow.add(double.s(), into={"number": first}, may_fail=True)
assert_type(flow.send(), Run[dict[str, Any]])
assert_type(flow.send().result_of(second), str)
assert_type(flow.send().result_of(third), int)

flow.add(total.s(), rule="some")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

assert_type(app.runs.list(states=["failed"], workflow="close*", limit=10).after, str | None)
app.runs.list(state="failed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def handles() -> None:
    sent = await chain(load.s("a"), total.s()).asend()
    assert_type(sent, Run[str])
    assert_type(await sent.aresult("1s"), str)
    assert_type(await sent.acancel(), bool)
    assert_type(await sent.aredrive(), int)
    assert_type([step.attempts for step in await sent.asteps()], list[int | None])
    async for step in sent.astream():
        assert_type(step.name, str)
    assert_type(app.runs.get("id"), Run[Any])


_workflow: Workflow[object] = chain(load.s("a"), total.s())


# Named


@app.workflow
def double_each(path: str, by: int = 2) -> Workflow[str]:
    return load.s(path) | double.s(by=by).each() | total.s()


@app.workflow(name="totals", queue="night")
def totals() -> Workflow[list[str]]:
    return group(total.s([1]), total.s([2]))


assert_type(double_each.send("a", by=3), Run[str])
assert_type(double_each.options(tenant="acme", labels={"team": "ops"}).send("a").result(), str)
assert_type(double_each("a"), Workflow[str])
assert_type(totals.send().result(), list[str])

double_each.send()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
double_each.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def no_graph() -> str:
    return "a graph"


# Steps without a task


@app.task
def publish(approved: bool, title: str) -> float:
    return len(title) * approved


assert_type((load.s("a") | wait("approval", bool, timeout="2d") | publish.s("a")).send().result(), float)
assert_type(wait("approval", bool, timeout=1, default=False).when("steps.a.result"), TasklessStep[bool])
assert_type(wait("approval", {"type": "boolean"}), TasklessStep[Any])
assert_type(sleep("2h"), TasklessStep[None])
assert_type(subworkflow(double_each, "a", by=3), TasklessStep[str])
assert_type(subworkflow("nightly", day="2027-01-31"), TasklessStep[Any])
assert_type(load.s("a").when("steps.a.result > 3").send().result(), list[int])
assert_type((load.s("a") | total.s().when("steps.load.result")).send().result(), str)
assert_type(dag().add(wait("go"), name="go"), GraphNode[Any])

_ = wait("approval", str) | publish.s("a")  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
subworkflow(double_each, 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
