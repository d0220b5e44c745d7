"""From workflows as they are written down to the nodes that a store keeps. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores.flows import FlowNode, Rule
from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.codec import encode_value
from taskmq.options.task_options import plan_call
from taskmq.workflow.calls import FlowHead, Input, NodeCall, Source, encode_call
from taskmq.workflow.dag import Dag
from taskmq.workflow.parts import Chain, Each, Group, OpenStep, Part, Step, StepCall
from taskmq.workflow.values import ListOf, Shape

__all__ = ["Graph", "compile_workflow"]


class Graph(msgspec.Struct):
    """A workflow as nodes, each after those that come before it."""

    head: FlowHead
    nodes: list[FlowNode]
    shape: Shape
    names: dict[str, Source] = msgspec.field(default_factory=dict[str, Source])


def compile_workflow(part: Part, content_type: str) -> Graph:
    """The nodes of a workflow.

    Raises:
        InvalidArguments: a call's arguments do not fit, or one lacks what nothing before it gives.
        InvalidOption: an option is not possible in a workflow.
        EncodeError: an argument has no form on the wire.
    """
    builder = _Builder(content_type)
    if isinstance(part, Dag):
        return builder.build_dag(part)
    placed = builder.place(part, [])
    head = FlowHead(content_type=content_type, output=placed.source, names=builder.names)
    return Graph(head, builder.nodes, placed.shape)


class _Placed(msgspec.Struct, frozen=True):
    source: Source
    shape: Shape


class _Builder:
    def __init__(self, content_type: str) -> None:
        self.nodes: list[FlowNode] = []
        self.names: dict[str, str] = {}
        self._content_type = content_type
        self._seen: Counter[str] = Counter()

    def build_dag(self, graph: Dag) -> Graph:
        placed: list[_Placed] = []
        used: set[int] = set()
        may_fail: set[str] = set()
        sources: dict[str, Source] = {}
        for entry in graph.entries:
            first = len(self.nodes)
            before = [placed[number].source for number in entry.after]
            named = {name: placed[number].source for name, number in entry.into.items()}
            used.update(entry.after, entry.into.values())
            one = self.place(entry.part, before, named=named, rule=entry.rule)
            placed.append(one)
            sources[entry.name] = one.source
            self.names[one.source.key] = entry.name
            if entry.may_fail:
                may_fail.update(node.key for node in self.nodes[first:])
        leaves = {
            entry.name: placed[number].source for number, entry in enumerate(graph.entries) if number not in used
        }
        head = FlowHead(
            content_type=self._content_type, leaves=leaves, names=self.names, may_fail=frozenset(may_fail)
        )
        shape: Shape = {
            entry.name: placed[number].shape for number, entry in enumerate(graph.entries) if number not in used
        }
        return Graph(head, self.nodes, shape, sources)

    def place(
        self,
        part: Part,
        before: Sequence[Source],
        *,
        named: dict[str, Source] | None = None,
        rule: Rule = "all",
    ) -> _Placed:
        """Add what `part` consists of, behind `before`, whose values it is given."""
        match part:
            case Each():
                return self._each(part, before, rule)
            case Step() | OpenStep():
                return self._step(part.call, before, named or {}, rule)
            case Chain(links=links):
                placed = self.place(links[0], before)
                for link in links[1:]:
                    placed = self.place(link, [placed.source])
                return placed
            case Group(members=members):
                return self._group([self.place(member, before) for member in members])
            case Dag():
                raise InvalidOption("a dag cannot be a part of another workflow: add the other's steps to it")
            case _:
                raise InvalidOption(f"{part!r} is no step: task.s(...) or task.si(...)")

    def _group(self, placed: Sequence[_Placed]) -> _Placed:
        members = tuple(one.source for one in placed)
        key = self._add("join", "all", [source.key for source in members], NodeCall(members=members))
        return _Placed(Source(key, "join"), tuple(one.shape for one in placed))

    def _step(self, call: StepCall, before: Sequence[Source], named: dict[str, Source], rule: Rule) -> _Placed:
        inputs = [Input(number, source) for number, source in enumerate(before)] if call.is_fed else []
        inputs += [Input(name, source) for name, source in named.items()]
        node = self._call(call, inputs)
        after = dict.fromkeys([source.key for source in (*before, *named.values())])
        key = self._add("call", rule, [*after], node)
        self._name(key, call.task.name)
        return _Placed(Source(key), call.task.returns)

    def _each(self, part: Each[Any, Any], before: Sequence[Source], rule: Rule) -> _Placed:
        if len(before) != 1:
            raise InvalidOption(
                f"task {part.call.task.name}: each(...) stands behind one step, whose value is a list"
            )
        call = self._call(part.call, [Input(0, before[0])])
        node = replace(call, inputs=(), over=before[0], max_width=part.max_width, is_spread=part.is_spread)
        key = self._add("map", rule, [before[0].key], node, limit=part.limit or 0)
        self._name(key, part.call.task.name)
        return _Placed(Source(key, "map"), ListOf(part.call.task.returns))

    def _call(self, call: StepCall, inputs: list[Input]) -> NodeCall:
        task = call.task
        if task.plan.ack == "early":
            raise InvalidOption(
                f"task {task.name}: ack='early' may lose a run with its worker, and its workflow would never end"
            )
        options = dict(call.options)
        max_attempts: Any = options.pop("max_attempts", None)
        if max_attempts is not None and (not isinstance(max_attempts, int) or max_attempts < 1):
            raise InvalidOption(f"task {task.name}: max_attempts={max_attempts!r}: a whole number from 1 on")
        plan = plan_call(call.base.call_plan, options, task=task.name)
        if plan.job_id is not None:
            raise InvalidOption(f"task {task.name}: job_id is not for steps of workflows, whose jobs have the flow's")
        order_key, key = plan.order_key, plan.idempotency_key
        if inputs:
            args = self._encoded(call, "args")
            kwargs = self._encoded(call, "kwargs") if call.kwargs else b""
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
            max_attempts=max_attempts,
            delay=plan.delay,
            eta=plan.eta,
            expires=plan.expires,
            expires_at=plan.expires_at,
            key=key,
            order_key=order_key,
            tenant=plan.tenant,
            priority=plan.priority,
            meta=plan.meta,
            headers=dict(plan.headers) if plan.headers else None,
        )

    def _complete(self, call: StepCall) -> tuple[Any, Any]:
        try:
            return call.task.signature.encode(call.args, dict(call.kwargs), self._content_type)
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; nothing stands before this step to give it more") from error

    def _encoded(self, call: StepCall, which: Literal["args", "kwargs"]) -> bytes:
        try:
            return encode_value(call.args if which == "args" else dict(call.kwargs), self._content_type)
        except EncodeError as error:
            raise EncodeError(f"task {call.task.name}: {error}") from error.__cause__

    def _name(self, key: str, name: str) -> None:
        self._seen[name] += 1
        self.names[key] = name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"

    def _add(
        self,
        kind: Literal["call", "map", "join"],
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
