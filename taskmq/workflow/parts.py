"""Workflows as they are written: calls in sequence or in parallel. Plain values; nothing is sent here."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar, Unpack, overload

from taskmq.client.sessions import Sessions, blocking
from taskmq.errors import InvalidOption
from taskmq.model.units import Duration
from taskmq.model.values.celery_words import CeleryHints
from taskmq.options.task_options import CallOptions
from taskmq.workflow.model.contents import ContentBuilder, RunPlan
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.service import RunService, check_run_id
from taskmq.workflow.step_call import CompleteStep, Rule, StepCall, StepTask, TaskStep

R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

_WIDTH: Final = 10_000
_LONGEST_NAME: Final = 128


class Workflow(CeleryHints, ABC, Generic[R_co]):
    """A chain, group, chord, graph or batch of calls, which is sent as a whole and has a value."""

    __slots__ = ()

    async def asend(
        self,
        *,
        run_id: str | None = None,
        tenant: str | None = None,
        name: str | None = None,
        timeout: Duration | None = None,
    ) -> Run[R_co]:
        """Start a run of it; return its handle once the run is in the store.

        A run whose id is known already is left as it is.

        Args:
            run_id: the run's id. Default: a new time-ordered UUID.
            tenant: the tenant of the run and of the jobs of its steps; the id begins with it, `@acme:`. Each tenant
                has its own ids. Default: no tenant.
            name: a name for lists; any number of runs may have the same. Default: the task of its first step.
            timeout: maximum duration; the run is cancelled then, and fails. Default: no limit.

        Raises:
            InvalidArguments, InvalidOption, EncodeError: a part is invalid; nothing was started.
            StoreUnavailable: the store could not be reached; the run may have started: call again with the same id.
            UnsupportedFeature: the app has no store.
        """
        service = self._service()
        if tenant == "":
            raise InvalidOption("tenant='': a name, or None for no tenant")
        if name is not None and not 1 <= len(name) <= _LONGEST_NAME:
            raise InvalidOption(f"name={name[:_LONGEST_NAME]!r}: 1 to {_LONGEST_NAME} characters")
        if run_id is not None:
            check_run_id(run_id)
        return await self._start(service, run_id, tenant, name, timeout)

    send = blocking(asend)

    @property
    def _sessions(self) -> Sessions:
        return self._service().sessions

    @abstractmethod
    def first_task(self) -> "StepTask | None":
        """The task of its first step, whose app sends the whole; None where it names none."""
        ...

    @abstractmethod
    def add_to(self, builder: ContentBuilder, before: Sequence[Any]) -> Any:
        """Add what it consists of to a graph, behind `before`, whose values it is given.

        Raises:
            InvalidArguments: a call's arguments do not fit, or one lacks what nothing before it gives.
            InvalidOption: an option is not possible in a workflow.
            EncodeError: an argument has no form on the wire.
        """
        ...

    def plan(self) -> RunPlan:
        """Compile the whole into the content of a run; raises like `add_to`."""
        plan: RunPlan = self.build(ContentBuilder(self.step_names()))
        return plan

    def step_names(self) -> list[str]:
        """Return the names that the author gave to its steps."""
        return []

    def build(self, builder: ContentBuilder) -> Any:
        """Add the whole to a builder and return its plan; raises like `add_to`."""
        return builder.plan(self.add_to(builder, []))

    async def _start(
        self,
        service: RunService,
        run_id: str | None,
        tenant: str | None,
        name: str | None,
        timeout: Duration | None,
    ) -> Run[R_co]:
        plan, first = self.plan(), self.first_task()
        label = name or ("" if first is None else first.name)
        started = await service.start(plan, run_id=run_id, tenant=tenant, name=label, timeout=timeout)
        return Run(started, service=service, shape=plan.shape)

    def _service(self) -> RunService:
        task = self.first_task()
        if task is None:
            raise InvalidOption(
                "this workflow names no task, so no app can send it: give it a step; a group of task.map(...) may be "
                "empty"
            )
        return RunService(task.services.producer.sessions)

    def then(self: "Workflow[A]", following: "OpenStep[A, B] | Workflow[B]") -> "Chain[B]":
        """Chain `following` after this one; unless it is an `si(...)`, it gets this one's value."""
        return Chain((*_links(self), *_links(following)))

    def __or__(self: "Workflow[A]", following: "OpenStep[A, B] | Workflow[B]") -> "Chain[B]":
        """Chain like `then`, as an operator."""
        return self.then(following)


class SingleStep(TaskStep):
    """A call as a part of a workflow."""

    __slots__ = ()

    @property
    def label(self) -> str:
        """Name of the step, unless an earlier one has it."""
        return self.call.task.name.rpartition(".")[2]

    def first_task(self) -> StepTask:
        return self.call.task

    def add_to(
        self,
        builder: ContentBuilder,
        before: Sequence[Any],
        *,
        named: Mapping[str, Any] | None = None,
        rule: Rule = "all",
    ) -> Any:
        return builder.step(self.call, before, named=named, rule=rule)

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """The same step with other options."""
        return self._with_call(self.call.with_options(options))

    def set(self, **options: Unpack[CallOptions]) -> Self:
        """Celery's word for `options`."""
        return self.options(**options)

    def when(self, condition: str) -> Self:
        """The same step, which is skipped unless a condition is met, such as `steps.check.result > 3`.

        The condition names steps before it, as in workflow files. A skipped step has no value, and steps that need
        it are skipped, too.

        Raises:
            InvalidOption: the condition cannot be parsed.
        """
        return self._with_call(self.call.when(condition))

    def _with_call(self, call: StepCall) -> Self:
        return type(self)(call)


class Step(SingleStep, CompleteStep, Workflow[R_co]):
    """A call with all its arguments."""

    __slots__ = ()

    def each(self, *, limit: int | None = None, max_width: int = _WIDTH) -> "OpenStep[Iterable[Any], list[R_co]]":
        """Call the step for each item, like `OpenStep.each`: the item precedes the present arguments.

        Raises:
            InvalidOption: it is an `si(...)`, which is given nothing.
        """
        if not self.call.is_fed:
            raise InvalidOption(f"task {self.call.task.name}: si(...) takes no result: use s(...).each()")
        return Each(self.call, limit=limit, max_width=max_width)


class OpenStep(SingleStep, Generic[A_contra, R_co]):
    """A call whose first argument comes from the step before it in a workflow."""

    __slots__ = ()

    def each(
        self: "OpenStep[A, B]", *, limit: int | None = None, max_width: int = _WIDTH
    ) -> "OpenStep[Iterable[A], list[B]]":
        """A call for each item of the list from the step before it; its value is the list of theirs, in that order.

        Args:
            limit: how many of them are out at a time; None: all.
            max_width: a longer list is refused, so the step fails.
        """
        return Each(self.call, limit=limit, max_width=max_width)


class Each(OpenStep[A_contra, R_co]):
    """A call for each item of a value that is not known yet."""

    __slots__ = ("is_spread", "limit", "max_width")

    def __init__(
        self, call: StepCall, *, limit: int | None = None, max_width: int = _WIDTH, is_spread: bool = False
    ) -> None:
        super().__init__(call)
        if limit is not None and limit < 1:
            raise InvalidOption(f"task {call.task.name}: limit={limit}: must be at least 1, or None for no limit")
        if max_width < 1:
            raise InvalidOption(f"task {call.task.name}: max_width={max_width}: must be at least 1")
        self.limit: int | None = limit
        self.max_width: int = max_width
        self.is_spread: bool = is_spread

    def add_to(
        self,
        builder: ContentBuilder,
        before: Sequence[Any],
        *,
        named: Mapping[str, Any] | None = None,  # noqa: ARG002 - `Dag.add` refuses it
        rule: Rule = "all",
    ) -> Any:
        return builder.each(
            self.call, before, limit=self.limit, max_width=self.max_width, is_spread=self.is_spread, rule=rule
        )

    def _with_call(self, call: StepCall) -> Self:
        return type(self)(call, limit=self.limit, max_width=self.max_width, is_spread=self.is_spread)


class Chain(Workflow[R_co]):
    """Calls in sequence; the value is that of the last one."""

    __slots__ = ("links",)

    def __init__(self, links: tuple["Part", ...]) -> None:
        if not links:
            raise InvalidOption("a chain needs at least one step")
        self.links: tuple[Part, ...] = links

    def first_task(self) -> StepTask | None:
        return next((task for link in self.links if (task := link.first_task()) is not None), None)

    def add_to(self, builder: ContentBuilder, before: Sequence[Any]) -> Any:
        placed = self.links[0].add_to(builder, before)
        for link in self.links[1:]:
            placed = link.add_to(builder, [placed.source])
        return placed


class Group(Workflow[list[A]]):
    """Calls in parallel; the value is the list of their values, in the order of writing: `[]` if there are none.

    Args:
        task: what its members call, where it may have none.
    """

    __slots__ = ("_task", "members")

    def __init__(self, members: tuple["Part", ...], *, task: StepTask | None = None) -> None:
        self.members: tuple[Part, ...] = members
        self._task = task

    def first_task(self) -> StepTask | None:
        return next((task for part in self.members if (task := part.first_task()) is not None), self._task)

    def add_to(self, builder: ContentBuilder, before: Sequence[Any]) -> Any:
        narrowed: Sequence[Any] = builder.narrow(before, len(self.members))
        placed: list[Any] = [member.add_to(builder, narrowed) for member in self.members]
        return builder.join(placed, narrowed)


Part = Workflow[Any] | OpenStep[Any, Any]


@overload
def chain(first: Workflow[A], /) -> Chain[A]: ...
@overload
def chain(first: Workflow[A], second: OpenStep[A, B] | Workflow[B], /) -> Chain[B]: ...
@overload
def chain(
    first: Workflow[A], second: OpenStep[A, B] | Workflow[B], third: OpenStep[B, C] | Workflow[C], /
) -> Chain[C]: ...
@overload
def chain(
    first: Workflow[A],
    second: OpenStep[A, B] | Workflow[B],
    third: OpenStep[B, C] | Workflow[C],
    fourth: OpenStep[C, D] | Workflow[D],
    /,
) -> Chain[D]: ...
@overload
def chain(*parts: OpenStep[Any, Any] | Workflow[Any]) -> Chain[Any]: ...
def chain(*parts: Part) -> Chain[Any]:
    """Chain calls: each one starts when the one before it has succeeded, and gets its value.

    `a.s() | b.s()` is the same. A chain whose first step lacks an argument is a part of another workflow, which gives
    it that. A step that is `si(...)` waits for the one before it, and does not get its value.
    """
    return Chain(tuple(link for part in parts for link in _links(part)))


@overload
def group(*members: OpenStep[Any, A] | Workflow[A]) -> Group[A]: ...
@overload
def group(members: Iterable[OpenStep[Any, A] | Workflow[A]], /) -> Group[A]: ...
def group(*members: Any) -> Group[Any]:
    """Run calls in parallel; a step chained after the group gets the list of their values."""
    given: tuple[Any, ...] = members
    if len(members) == 1 and hasattr(members[0], "__iter__"):
        given = tuple(members[0])
    return Group(tuple(check_part(member) for member in given))


@overload
def chord(header: Iterable[OpenStep[Any, A] | Workflow[A]] | Group[A], body: OpenStep[list[A], B]) -> Chain[B]: ...
@overload
def chord(header: Iterable[OpenStep[Any, A] | Workflow[A]] | Group[A], body: Workflow[B]) -> Chain[B]: ...
def chord(header: "Iterable[Part] | Group[Any]", body: Any = None) -> Chain[Any]:
    """Call `body` once all of `header` have succeeded, with the list of their values: `group(header) | body`."""
    if body is None:
        raise InvalidOption("chord(header)(body) is Celery's form; in taskmq use chord(header, body), then send()")
    members: Any = header if isinstance(header, Group) else group(header)
    chain: Chain[Any] = members.then(body)
    return chain


def _links(part: Part) -> tuple[Part, ...]:
    return part.links if isinstance(part, Chain) else (check_part(part),)


def check_part(part: object) -> Part:
    """`part` itself.

    Raises:
        InvalidOption: it is no part of a workflow.
    """
    if not isinstance(part, Workflow | OpenStep):
        raise InvalidOption(f"{part!r} is not a step: use task.s(...) or task.si(...)")
    return part  # pyright: ignore[reportUnknownVariableType]
