"""The nodes of workflow definitions."""

from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq import InvalidArguments, InvalidOption, TaskMQ, chain, chord, dag, group
from taskmq.errors import EncodeError, MalformedMessage
from taskmq.model.envelope import JSON, MSGPACK, NO_KWARGS
from taskmq.model.retry import RunOptions
from taskmq.model.topology import WorkQueue
from taskmq.workflow.model.calls import (
    Graph,
    Input,
    NodeCall,
    Source,
    decode_call,
    decode_failure,
    decode_head,
    encode_call,
    insert_values,
    join_values,
)
from taskmq.workflow.parts import Chain, Each, OpenStep
from taskmq.workflow.step_call import StepCall
from tests.unit.app_kit import new_url

app = TaskMQ(new_url(), queues=[WorkQueue("line", ordered=4)])


@app.task(name="one", queue="q")
def one(path: str) -> int:
    return len(path)


@app.task(name="two")
def two(number: int, by: int = 1) -> int:
    return number * by


@app.task(name="many")
def many(numbers: list[int]) -> list[int]:
    return numbers


@app.task(name="lined", queue="line", order_key="key")
def lined(key: str) -> None: ...


def _calls(graph: Graph) -> list[NodeCall]:
    return [decode_call(node.call) for node in graph.nodes]


def _edges(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.kind, node.after) for node in graph.nodes]


def test_a_chain_waits_and_passes_values_step_by_step() -> None:
    graph = (one.s("abc") | two.s(by=3) | two.si(7) | two.s()).compile(JSON)

    assert _edges(graph) == [("call", ()), ("call", ("0",)), ("call", ("1",)), ("call", ("2",))]
    first, second, third, fourth = _calls(graph)
    assert (first.task, first.queue, first.args) == ("one", "q", b'["abc"]')
    assert (second.args, second.kwargs, second.inputs) == (b"[]", b'{"by":3}', (Input(0, Source("0")),))
    assert (third.args, third.inputs) == (b"[7]", ())
    assert fourth.inputs == (Input(0, Source("2")),)
    assert graph.head.output == Source("3")
    assert graph.head.names == {"0": "one", "1": "two", "2": "two-2", "3": "two-3"}


def test_a_group_is_joined_and_the_next_step_gets_the_list() -> None:
    graph = (chord([two.s(1), one.s("a") | two.s()], many.s())).compile(JSON)

    assert _edges(graph) == [
        ("call", ()),
        ("call", ()),
        ("call", ("1",)),
        ("join", ("0", "2")),
        ("call", ("3",)),
    ]
    assert _calls(graph)[3].members == (Source("0"), Source("2"))
    assert _calls(graph)[4].inputs == (Input(0, Source("3", "join")),)


def test_a_group_behind_a_step_passes_its_value_to_each_member() -> None:
    graph = (chain(one.s("a"), group(two.s(), two.s(by=2), two.si(3)))).compile(JSON)

    assert [call.inputs for call in _calls(graph)[1:4]] == [(Input(0, Source("0")),)] * 2 + [()]
    assert [after for _, after in _edges(graph)] == [(), ("0",), ("0",), ("0",), ("1", "2", "3")]


def test_map_starmap_and_chunks_are_groups() -> None:
    assert [call.args for call in _calls((two.map([1, 2])).compile(JSON))] == [b"[1]", b"[2]", b""]
    assert [call.args for call in _calls((two.starmap([(1, 2)])).compile(JSON))] == [b"[1,2]", b""]
    chunks = (many.chunks(range(5), 2)).compile(JSON)
    assert [call.args for call in _calls(chunks)] == [b"[[0,1]]", b"[[2,3]]", b"[[4]]", b""]
    with pytest.raises(InvalidOption, match="at least 1"):
        many.chunks([1], 0)


def test_each_becomes_a_map_over_the_previous_step() -> None:
    graph = (many.s([1]) | two.s(by=2).each(limit=3, max_width=9) | many.s()).compile(JSON)

    assert _edges(graph)[1] == ("map", ("0",))
    assert graph.nodes[1].limit == 3
    call = _calls(graph)[1]
    assert (call.over, call.max_width, call.kwargs, call.inputs) == (Source("0"), 9, b'{"by":2}', ())
    assert _calls(graph)[2].inputs == (Input(0, Source("1", "map")),)
    with pytest.raises(InvalidOption, match="comes after one step"):
        (Chain[Any]((two.s().each(),))).compile(JSON)
    with pytest.raises(InvalidOption, match="limit=0"):
        two.s().each(limit=0)
    with pytest.raises(InvalidOption, match="takes no result"):
        two.si(1).each()
    with pytest.raises(InvalidOption, match="max_width=0"):
        two.s().each(max_width=0)


def test_a_graph_has_its_edges_rules_and_leaves() -> None:
    flow = dag()
    first = flow.add(one.s("a"))
    second = flow.add(two.s(), after=[first], name="middle", may_fail=True)
    third = flow.add(two.s(), into={"by": second, "number": first}, rule="always")
    flow.add(group(two.si(1), two.si(2)), after=[second])
    flow.add(one.s("b") | two.s(), after=[third])
    graph = (flow).compile(JSON)

    assert [(node.rule, node.after) for node in graph.nodes[:3]] == [
        ("all", ()),
        ("all", ("0",)),
        ("always", ("1", "0")),
    ]
    assert _calls(graph)[2].inputs == (Input("by", Source("1")), Input("number", Source("0")))
    assert graph.head.leaves == {"group": Source("5", "join"), "chain": Source("7")}
    assert graph.head.may_fail == {"1"}
    assert graph.head.names["1"] == "middle"
    assert repr(second) == "<Node middle>"


def test_a_graph_refuses_invalid_input() -> None:
    flow, other = dag(), dag()
    elsewhere = other.add(one.s("a"))
    flow.add(one.s("a"), name="x")

    with pytest.raises(InvalidOption, match="another graph"):
        flow.add(two.s(), after=[elsewhere])
    with pytest.raises(InvalidOption, match="defined twice"):
        flow.add(one.s("b"), name="x")
    with pytest.raises(InvalidOption, match="rule='some'"):
        flow.add(one.s("b"), rule="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="for one step"):
        flow.add(one.s("b") | two.s(), rule="any")
    with pytest.raises(InvalidOption, match=r"not for each"):
        flow.add(two.s().each(), into={"by": elsewhere})
    with pytest.raises(InvalidOption, match="part of another"):
        (group(flow)).compile(JSON)


def test_an_invalid_step_is_refused() -> None:
    with pytest.raises(InvalidOption, match="is not a step"):
        group(one)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="is not a step"):
        (chain(one.s("a"), one)).compile(JSON)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="a chain needs at least one step"):
        Chain[Any](())


def test_a_step_has_its_own_options() -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    step = two.options(priority=9).s(1).options(queue="q", max_attempts=2).set(delay=5, tenant="t", meta={"a": "b"})
    graph = (step | two.s().options(eta=at, headers={"x": 1}).set(expires=60)).compile(JSON)

    first, second = _calls(graph)
    assert (first.priority, first.queue, first.run, first.delay) == (9, "q", RunOptions(max_attempts=2), 5000)
    assert (first.tenant, first.meta) == ("t", {"a": "b"})
    assert second.eta == int(at.timestamp() * 1000)
    assert (second.expires, second.headers) == (60_000, {"x": 1})
    for wrong in ({"max_attempts": 0}, {"max_attempts": "3"}, {"job_id": "x"}, {"dealy": 3}):
        with pytest.raises(InvalidOption):
            (two.s(1).options(**wrong)).compile(JSON)


def test_mismatching_arguments_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidArguments, match="no step before this one gives it more"):
        (group(two.s())).compile(JSON)
    with pytest.raises(InvalidArguments):
        (two.s("a")).compile(JSON)  # type: ignore[call-overload]
    with pytest.raises(EncodeError):
        (one.s("a") | OpenStep[Any, Any](StepCall(two, None, (object(),), {}, {}, is_fed=True))).compile(JSON)


def test_a_task_that_may_be_lost_cannot_be_a_step() -> None:
    @app.task(name="lossy", ack="early")
    def lossy() -> None: ...

    with pytest.raises(InvalidOption, match="would never end"):
        (lossy.s()).compile(JSON)
    with pytest.raises(InvalidOption, match="at_most_once"):
        (two.s(1).options(guarantee="at_most_once")).compile(JSON)


def test_a_task_with_unique_jobs_cannot_be_a_step() -> None:
    @app.task(name="single", unique=True)
    def single() -> None: ...

    with pytest.raises(InvalidOption, match="task single: unique= could leave a step without a job"):
        single.s().compile(JSON)


def test_a_step_cannot_go_to_the_store() -> None:
    with pytest.raises(InvalidOption, match="steps of workflows go to the broker"):
        one.s("a").options(lane="store").compile(JSON)


def test_the_order_key_of_a_step_uses_known_arguments() -> None:
    known, given = _calls((lined.s("a") | lined.si("b").options(order_key="k")).compile(JSON))

    assert (known.order_key, given.order_key) == ("a", "k")
    with pytest.raises(InvalidOption, match="order_key"):
        (one.s("a") | lined.s()).compile(JSON)  # type: ignore[operator]


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_values_are_inserted_at_their_positions(content_type: str) -> None:
    from taskmq.model.values.wire_form import decode_value, encode_value

    args, kwargs = encode_value([3], content_type), encode_value({"a": 1}, content_type)
    one_more = encode_value(9, content_type)
    joined = join_values([one_more, one_more], content_type)

    found = insert_values(args, kwargs, [(0, one_more), (1, joined), ("b", one_more)], content_type)
    empty = insert_values(b"", b"", [(0, one_more)], content_type)

    assert decode_value(bytes(found[0]), content_type) == [9, [9, 9], 3]
    assert decode_value(bytes(found[1]), content_type) == {"a": 1, "b": 9}
    assert decode_value(bytes(empty[0]), content_type) == [9]
    assert empty[1] is NO_KWARGS


def test_data_of_another_version_is_reported() -> None:
    assert decode_call(encode_call(NodeCall(task="a"))) == NodeCall(task="a")
    for read in (decode_call, decode_head):
        with pytest.raises(MalformedMessage, match="cannot be read"):
            read(b"\x01")
    assert decode_failure(b"") is None
    assert decode_failure(b"\x01") is None


def test_each_is_an_open_step() -> None:
    assert isinstance(two.s().each(), Each)
    assert isinstance(two.s(), OpenStep)
