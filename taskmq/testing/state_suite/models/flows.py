"""Random workflows compared with a model, in any order and with repeated calls."""

import random
from collections.abc import Mapping, Sequence

from taskmq.contracts.stores.flows import FINISH, BegunNode, FlowNode, FlowStore, NodeKind, NodeState, Rule
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new

__all__ = ["FlowsByModel", "expected_states", "random_graph"]

_RULES: Sequence[Rule] = ("all", "all", "all", "any", "none_failed", "always")
_ENDS = (NodeState.SUCCEEDED,) * 6 + (NodeState.FAILED, NodeState.FAILED, NodeState.CANCELLED)
_BAD = ("failed", "upstream_failed")


def random_graph(chance: random.Random, size: int) -> list[FlowNode]:
    """Return a random graph of this many nodes, each after its dependencies."""
    nodes: list[FlowNode] = []
    for number in range(size):
        most = min(number, chance.choice((0, 1, 1, 2, 3, 6, number)))
        before = tuple(str(each) for each in sorted(chance.sample(range(number), most)))
        kind: NodeKind = "join" if before and chance.random() < 0.15 else "call"
        nodes.append(FlowNode(key=str(number), kind=kind, rule=chance.choice(_RULES), after=before))
    return nodes


def expected_states(nodes: Sequence[FlowNode], ends: Mapping[str, NodeState]) -> dict[str, NodeState]:
    """Return the expected end of every node from the ends of its predecessors."""
    found: dict[str, NodeState] = {}
    for node in nodes:
        before = [str(found[key]) for key in node.after]
        good, bad = before.count("succeeded"), sum(before.count(state) for state in _BAD)
        runs = {
            "all": good == len(before),
            "any": good > 0 or not before,
            "none_failed": bad == 0,
            "always": True,
        }[node.rule]
        if runs and not (node.rule == "any" and not before):
            found[node.key] = NodeState.SUCCEEDED if node.kind == "join" else ends[node.key]
        else:
            found[node.key] = NodeState.UPSTREAM_FAILED if bad else NodeState.SKIPPED
    return found


class FlowsByModel(StateCase):
    """Behavior of `FlowStore`, compared with the model."""

    graphs: int = 12

    @case
    async def test_random_graphs_match_the_model_despite_duplicate_calls(self) -> None:
        chance = random.Random(7)
        for _ in range(self.graphs):
            flows = self.state().flows
            nodes = random_graph(chance, chance.randint(1, 25))
            ends = {node.key: chance.choice(_ENDS) for node in nodes}
            flow_id = new("flow")
            assert await flows.create(flow_id, b"", nodes, ttl=LONG)

            runs = await drive(flows, flow_id, ends, chance)

            expected = expected_states(nodes, ends)
            assert await flows.states(flow_id) == expected
            kinds = {node.key: node.kind for node in nodes}
            ran = {NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED}
            assert runs == {key: 1 for key, state in expected.items() if state in ran and kinds[key] == "call"}
            assert sorted(await flows.ended_keys(flow_id, offset=0, limit=100)) == sorted(expected)

    @case
    async def test_redrives_match_the_model_and_do_not_rerun_succeeded_nodes(self) -> None:
        chance = random.Random(8)
        for _ in range(self.graphs):
            flows = self.state().flows
            nodes = random_graph(chance, chance.randint(2, 25))
            ends = {node.key: chance.choice(_ENDS) for node in nodes}
            flow_id = new("flow")
            await flows.create(flow_id, b"", nodes, ttl=LONG)
            await drive(flows, flow_id, ends, chance)
            before = await flows.states(flow_id)

            driven = await flows.redrive(flow_id)
            mended = {node.key: chance.choice(_ENDS) for node in nodes}
            runs = await drive(flows, flow_id, mended, chance)

            good = {key for key, state in before.items() if state is NodeState.SUCCEEDED}
            assert driven == len(before) - len(good)
            assert not good.intersection(runs)
            if driven:
                after = await flows.states(flow_id)
                assert {key for key in good if after[key] is not NodeState.SUCCEEDED} == set()
                # Succeeded nodes stay; all others are evaluated as if they had never run.
                free = [FlowNode(key=node.key, kind="call") if node.key in good else node for node in nodes]
                assert after == expected_states(free, {**mended, **dict.fromkeys(good, NodeState.SUCCEEDED)})


async def drive(
    flows: FlowStore, flow_id: str, ends: Mapping[str, NodeState], chance: random.Random
) -> dict[str, int]:
    """Run a flow to its end by several takers, which may repeat every call; return how often each node ran."""
    runs: dict[str, int] = {}
    ready: list[str] = []
    is_finished = False
    taken = await flows.take(flow_id, taker="sender", lease=LONG)
    while True:
        ready += [node.key for node in taken.nodes if node.key != FINISH]
        is_finished |= any(node.key == FINISH for node in taken.nodes)
        if taken.nodes or taken.is_more:
            keys = [node.key for node in taken.nodes]
            if chance.random() < 0.3:
                again = await flows.take(flow_id, taker="sender", lease=LONG, again=True)
                assert {node.key for node in again.nodes} >= set(keys)
            taken = await flows.mark_done(flow_id, keys, taker="sender", lease=LONG)
            continue
        if not ready:
            assert is_finished
            return runs
        key = ready.pop(chance.randrange(len(ready)))
        if chance.random() < 0.2:
            ready.append(key)
        begun = await flows.start(flow_id, key, owner=new("run"), seconds=LONG, takes_over=False)
        if not isinstance(begun, BegunNode):
            continue
        runs[key] = runs.get(key, 0) + 1
        if chance.random() < 0.2:
            # The worker dies without reporting the end.
            stale = begun
            begun = await flows.start(flow_id, key, owner=new("run"), seconds=LONG, takes_over=True)
            assert isinstance(begun, BegunNode)
            assert begun.token > stale.token
            refused = await flows.end(
                flow_id, key, token=stale.token, state=NodeState.FAILED, value=b"", taker=key, lease=LONG
            )
            assert refused is None
        for _ in range(chance.choice((1, 1, 2))):
            answer = await flows.end(
                flow_id, key, token=begun.token, state=ends[key], value=key.encode(), taker="sender", lease=LONG
            )
            assert answer is not None
            taken = answer
