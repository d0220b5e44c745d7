"""Corner cases of a flow's transitions: missing and outdated nodes."""

from msgspec.structs import replace

from taskmq.contracts.stores.flows import FINISH, FlowNode, NodeState
from taskmq.workflow.model.flow_view import NodeClaim
from taskmq.workflow.model.state_machine import end_node
from taskmq.workflow.model.transitions import (
    append_to_batch,
    cancel_flow,
    done_taken,
    end_run,
    expand_map,
    open_flow,
    redrive_flow,
    release_run,
    renew_run,
    start_run,
    take_some,
)
from taskmq_local.memory.flows import MemoryFlow


def _flow(*nodes: FlowNode) -> MemoryFlow:
    view = MemoryFlow(b"", list(nodes), ttl=1)
    open_flow(view, nodes)
    return view


def _end(view: MemoryFlow, key: str, state: NodeState = NodeState.SUCCEEDED, *, token: int = 0) -> object:
    return end_run(view, key, token=token, state=state, value=b"1", taker="a", until=10, now=5)


def test_an_absent_node_is_neither_ended_expanded_renewed_nor_returned() -> None:
    view = _flow(FlowNode(key="one"))

    expand_map(view, "nobody", [b"x"], first=0, total=1)
    expand_map(view, "one", [b"x"], first=0, total=1)
    release_run(view, "nobody", token=1)
    view.offer("nobody")

    assert _end(view, "nobody") is None
    assert not renew_run(view, "nobody", token=1, until=10)
    assert [node.key for node in take_some(view, taker="a", until=10, now=5).nodes] == ["one"]
    assert [*view.nodes] == ["one"]


def test_a_batch_accepts_calls_under_each_name_once_and_none_once_it_is_closed() -> None:
    view = _flow(FlowNode(key="b", kind="batch"), FlowNode(key="one"))

    def append(*calls: bytes, name: str = "", closes: bool = False, key: str = "b") -> int | None:
        return append_to_batch(view, key, calls, name=name, closes=closes)

    assert [append(b"x", b"y", name="n"), append(b"z"), append(b"x", b"y", name="n")] == [0, 2, 0]
    assert [append(b"x", key="one"), append(b"x", key="nobody")] == [None, None]
    assert [append(b"w", name="last", closes=True), append(b"w", name="last", closes=True)] == [3, 3]
    assert [append(closes=True), append(b"v", closes=True), append(b"v")] == [4, None, None]
    assert view.value("b") == b"4"
    for key in ("b.0", "b.1", "b.2", "b.3"):
        _end(view, key)
    assert view.nodes["b"].state is NodeState.SUCCEEDED
    assert append(closes=True) == 4


def test_an_end_is_refused_from_an_older_run_or_without_a_run() -> None:
    view = _flow(FlowNode(key="one"))
    view.put(replace(view.nodes["one"], claim=NodeClaim(2, "b", 100)))

    assert _end(view, "one", token=1) is None
    assert _end(view, "one") is None
    assert _end(view, "one", token=2) is not None


def test_a_repeated_end_returns_the_leftover_nodes_and_another_end_none() -> None:
    view = _flow(FlowNode(key="one"), FlowNode(key="two", after=("one",)))

    first = _end(view, "one")
    again = _end(view, "one")

    assert first == again
    assert _end(view, "one", NodeState.FAILED) is None


def test_cancelling_a_flow_names_running_nodes_and_ends_waiting_ones() -> None:
    view = _flow(FlowNode(key="runs"), FlowNode(key="waits"))
    view.put(replace(view.nodes["runs"], claim=NodeClaim(1, "b", 100)))

    assert cancel_flow(view, reason="enough", now=5) == ["runs"]

    assert view.nodes["waits"].state is NodeState.CANCELLED


def test_only_a_flow_that_has_ended_badly_can_be_redriven() -> None:
    view = _flow(FlowNode(key="one"), FlowNode(key="two", after=("one",)))
    assert redrive_flow(view) == 0
    _end(view, "one", NodeState.FAILED)
    done_taken(view, ["one"], taker="a", until=10, now=5)

    assert redrive_flow(view) == 2

    assert [node.key for node in take_some(view, taker="a", until=20, now=15).nodes] == ["one"]


def test_a_flow_with_only_successful_nodes_is_not_redriven() -> None:
    view = _flow(FlowNode(key="one"))
    _end(view, "one")

    assert redrive_flow(view) == 0


def test_a_run_begins_if_the_node_is_ready_and_free() -> None:
    view = _flow(FlowNode(key="one"), FlowNode(key="two", after=("one",)))

    begun = start_run(view, "one", owner="a", until=10, now=5, takes_over=False)
    busy = start_run(view, "one", owner="b", until=10, now=5, takes_over=False)

    assert type(begun).__name__ == "BegunNode"
    assert type(busy).__name__ == "BusyNode"


def test_the_end_of_the_last_node_offers_the_finish() -> None:
    view = _flow(FlowNode(key="one"))

    end_node(view, view.nodes["one"], NodeState.SUCCEEDED)

    assert [node.key for node in take_some(view, taker="a", until=10, now=5).nodes] == [FINISH]
