"""Builder of a store's nodes from written workflows. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores.flows import FlowNode, Rule
from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.codec import ReturnType
from taskmq.options.task_options import plan_call
from taskmq.workflow.model.calls import FlowHead, Graph, Input, NodeCall, Source, encode_call
from taskmq.workflow.shapes import ListOf, Shape
from taskmq.workflow.step_call import StepCall

__all__ = ["GraphBuilder", "Placed"]


class Placed(msgspec.Struct, frozen=True):
    """The source and the type of a part's value."""

    source: Source
    shape: Shape


class GraphBuilder:
    """Nodes in order; parts of workflows add themselves.

    Attributes:
        tenant: tenant of the steps' jobs, which overrides their own; "": their own.
    """

    def __init__(self, content_type: str, *, tenant: str = "") -> None:
        self.tenant: str = tenant
        self.nodes: list[FlowNode] = []
        self.names: dict[str, str] = {}
        self._content_type = content_type
        self._seen: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Number of nodes in the graph."""
        return len(self.nodes)

    def keys_since(self, first: int) -> list[str]:
        """Return the keys of the nodes from this number on."""
        return [node.key for node in self.nodes[first:]]

    def name(self, placed: Placed, name: str) -> Placed:
        """Show the step under another name."""
        self.names[placed.source.key] = name
        return placed

    def narrow(self, before: Sequence[Source], followers: int) -> Sequence[Source]:  # noqa: ARG002 - a join is narrow
        """Return the nodes that many followers wait for."""
        return before

    def plan(self, placed: Placed) -> Graph:
        """Return the graph, whose value is that of `placed`."""
        head = FlowHead(content_type=self._content_type, output=placed.source, names=self.names)
        return Graph(head, self.nodes, placed.shape)

    def plan_of_leaves(
        self, parts: Mapping[str, Placed], leaves: Collection[str], *, may_fail: Collection[str]
    ) -> Graph:
        """Return the graph, whose value is that of each leaf by its name.

        Args:
            may_fail: keys of nodes whose failure is not the flow's.
        """
        sources = {name: placed.source for name, placed in parts.items()}
        ends = {name: sources[name] for name in leaves}
        head = FlowHead(content_type=self._content_type, leaves=ends, names=self.names, may_fail=frozenset(may_fail))
        return Graph(head, self.nodes, {name: parts[name].shape for name in leaves}, sources)

    def join(self, placed: Sequence[Placed], before: Sequence[Source]) -> Placed:
        """Add a node whose value is the list of theirs; an empty list is ready once all of `before` succeeded."""
        members = tuple(one.source for one in placed)
        after = tuple(dict.fromkeys(source.key for source in before)) if not members else ()
        key = self._add(
            "join", "all", after or [source.key for source in members], NodeCall(members=members, after=after)
        )
        return Placed(Source(key, "join"), tuple(one.shape for one in placed))

    def step(
        self,
        call: StepCall,
        before: Sequence[Source],
        *,
        named: Mapping[str, Source] | None = None,
        rule: Rule = "all",
    ) -> Placed:
        """Add a call after `before`, whose values it gets.

        Args:
            named: more nodes that it waits for, by the name of the argument for the value.
        """
        named = named or {}
        inputs = [Input(number, source) for number, source in enumerate(before)] if call.is_fed else []
        inputs += [Input(name, source) for name, source in named.items()]
        node = self._call(call, inputs)
        if not call.is_fed:
            node = replace(node, after=tuple(dict.fromkeys(source.key for source in before)))
        after = dict.fromkeys([source.key for source in (*before, *named.values())])
        key = self._add("call", rule, [*after], node)
        self._name(key, call.task.name)
        return Placed(Source(key), call.task.returns)

    def each(
        self,
        call: StepCall,
        before: Sequence[Source],
        *,
        limit: int | None,
        max_width: int,
        is_spread: bool,
        rule: Rule = "all",
    ) -> Placed:
        """Add a call for each item of the value of the one step before it."""
        if len(before) != 1:
            raise InvalidOption(f"task {call.task.name}: each(...) comes after one step, whose value is a list")
        node = replace(
            self._call(call, [Input(0, before[0])], is_spread=is_spread),
            inputs=(),
            over=before[0],
            max_width=max_width,
            is_spread=is_spread,
        )
        key = self._add("map", rule, [before[0].key], node, limit=limit or 0)
        self._name(key, call.task.name)
        return Placed(Source(key, "map"), ListOf(call.task.returns))

    def batch(self, *, limit: int | None) -> Placed:
        """Add a node that gets its calls one by one, until it is closed."""
        key = self._add("batch", "all", [], NodeCall(), limit=limit or 0)
        self._name(key, "jobs")
        return Placed(Source(key, "map"), ListOf(ReturnType(Any)))

    def child(self, call: StepCall) -> bytes:
        """Return the encoded call of a batch's child."""
        return encode_call(self._call(call, []))

    def _call(self, call: StepCall, inputs: list[Input], *, is_spread: bool = False) -> NodeCall:
        task = call.task
        before = None if is_spread else sum(isinstance(each.to, int) for each in inputs)
        if task.plan.ack == "early":
            raise InvalidOption(
                f"task {task.name}: ack='early' may lose a run with its worker, and its workflow would never end"
            )
        if task.plan.unique is not None:
            raise InvalidOption(
                f"task {task.name}: unique= could leave a step without a job, and its workflow would never end: let "
                "the step call a task without it; the workflow is one by its flow_id"
            )
        plan = plan_call(call.plan or task.call_plan, call.options, task=task.name)
        if plan.run is not None and plan.run.once:
            raise InvalidOption(
                f"task {task.name}: guarantee='at_most_once' may lose a run with its worker, and its workflow would "
                "never end"
            )
        if plan.job_id is not None:
            raise InvalidOption(f"task {task.name}: job_id is not for steps of workflows, whose jobs have the flow's")
        if plan.lane == "store":
            raise InvalidOption(
                f"task {task.name}: steps of workflows go to the broker, but its calls to the store: use "
                'task.options(lane="broker")'
            )
        order_key, key = plan.order_key, plan.idempotency_key
        if inputs:
            raw_args, raw_kwargs = task.signature.encode_part(
                call.args, call.kwargs, self._content_type, before=before
            )
            args, kwargs = bytes(raw_args), bytes(raw_kwargs) if call.kwargs else b""
            if order_key is None and task.order_key is not None:
                raise InvalidOption(
                    f"task {task.name}: its order_key is made of arguments, which come from other steps: give the "
                    "step one: .options(order_key=...)"
                )
        else:
            raw_args, raw_kwargs = self._complete(call)
            args, kwargs = bytes(raw_args), bytes(raw_kwargs) if call.kwargs else b""
            if order_key is None and task.order_key is not None:
                order_key = task.order_key.of(call.args, dict(call.kwargs))
        return NodeCall(
            task=task.name,
            queue=plan.queue,
            args=args,
            kwargs=kwargs,
            inputs=tuple(inputs),
            run=plan.run,
            delay=plan.delay,
            eta=plan.eta,
            expires=plan.expires,
            expires_at=plan.expires_at,
            key=key,
            order_key=order_key,
            tenant=self.tenant or plan.tenant,
            priority=plan.priority,
            meta=plan.meta,
            headers=dict(plan.headers) if plan.headers else None,
        )

    def _complete(self, call: StepCall) -> tuple[Any, Any]:
        try:
            return call.task.signature.encode(call.args, dict(call.kwargs), self._content_type)
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; no step before this one gives it more") from error

    def _name(self, key: str, name: str) -> None:
        self._seen[name] += 1
        self.names[key] = name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"

    def _add(
        self,
        kind: Literal["call", "map", "batch", "join"],
        rule: Rule,
        after: Sequence[str],
        call: NodeCall,
        *,
        limit: int = 0,
    ) -> str:
        key = str(len(self.nodes))
        self.nodes.append(
            FlowNode(
                key=key, kind=kind, rule=rule, after=tuple(dict.fromkeys(after)), call=encode_call(call), limit=limit
            )
        )
        return key
