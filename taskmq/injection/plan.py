"""Injection plan: the providers of a task's function, and the order of their calls. Pure.

A parameter that `Depends` on a provider is filled in when the task runs, and does not travel. A provider may depend
on others, and take the `Context`. A `Plan` lists the providers to call, their order, and the receivers of their
values; it is made once, when the task is defined. Tasks without dependencies have none.
"""

import functools
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import IO, Annotated, Any, Final, Literal, TypeVar, overload

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.values.annotations import is_injected
from taskmq.run.context import Context

T = TypeVar("T")
F = TypeVar("F", bound=IO[Any])

Provider = Callable[..., Any]
Scope = Literal["task", "worker"]
Kind = Literal["plain", "coroutine", "generator", "async generator"]

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, _POSITIONAL, inspect.Parameter.VAR_POSITIONAL)


class Dependency(msgspec.Struct, frozen=True):
    """Marker that `Depends` leaves in a signature."""

    provider: Provider
    scope: Scope


@overload
def Depends(provider: Callable[..., F], /, *, scope: Scope = "task") -> F: ...
@overload
def Depends(provider: Callable[..., AsyncIterator[T]], /, *, scope: Scope = "task") -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], /, *, scope: Scope = "task") -> T: ...
@overload
def Depends(provider: Callable[..., Coroutine[Any, Any, T]], /, *, scope: Scope = "task") -> T: ...
@overload
def Depends(provider: Callable[..., T], /, *, scope: Scope = "task") -> T: ...
def Depends(provider: Provider, /, *, scope: Scope = "task") -> Any:  # noqa: N802 - used where an instance is
    """Fill a task's parameter with what `provider` returns or yields, when the task runs.

    As a default value, `session: Session = Depends(open_session)`, it lets type checkers know that callers omit the
    parameter; `Annotated[Session, Depends(open_session)]` does the same at run time.

    A provider is a function, a coroutine function, or a generator of either kind, which yields once. The code after
    the `yield` runs when the task has ended, even by an error, a timeout or a cancellation, the last provider first.
    It sees the task's exception at the `yield` and cannot swallow it. Its own parameters may be dependencies or a
    `Context`; others need defaults. Within a run it is called once, however many depend on it.

    Args:
        scope: `worker` calls it once per worker process, and ends it when the worker has drained.

    Raises:
        InvalidOption: the provider is not callable.
    """
    if not callable(provider):
        raise InvalidOption(f"Depends({provider!r}): it is not callable; give the function that creates the value")
    if scope not in typing.get_args(Scope):
        raise InvalidOption(f"Depends(..., scope={scope!r}): must be 'task' or 'worker'")
    return Dependency(provider, scope)


class DependencyNode(msgspec.Struct, frozen=True):
    """A call of a provider.

    Attributes:
        label: its name, for people.
        takes: its parameters, and the nodes that fill them.
        context: its context parameter; None without one.
    """

    provider: Provider
    kind: Kind
    scope: Scope
    label: str
    takes: tuple[tuple[str, int], ...]
    context: str | None

    @property
    def is_async(self) -> bool:
        return self.kind in ("coroutine", "async generator")


class _Target(msgspec.Struct, frozen=True):
    """A parameter of the task's function.

    Attributes:
        index: its index among positional arguments; -1: it is passed by name.
        is_last: whether only dependencies follow it, so that a caller can pass it by position.
        node: the node that fills it.
    """

    name: str
    index: int
    is_last: bool
    node: int


class InjectionPlan(msgspec.Struct, frozen=True):
    """The providers of one function.

    Attributes:
        nodes: in an order in which each follows those that it takes.
        targets: in the order of the function's parameters.
    """

    nodes: tuple[DependencyNode, ...]
    targets: tuple[_Target, ...]

    @property
    def first_async(self) -> DependencyNode | None:
        """First provider that needs an event loop, if any."""
        return next((node for node in self.nodes if node.is_async), None)

    def insert(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], values: Mapping[int, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call with `values` inserted where the function takes them."""
        named = dict(kwargs)
        for target in self.targets:
            if target.node not in values:
                continue
            value = values[target.node]
            if 0 <= target.index <= len(args):
                args = (*args[: target.index], value, *args[target.index :])
            else:
                named[target.name] = value
        return args, named

    def without(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "InjectionPlan":
        """Return the plan without the values that a caller passes itself."""
        targets = tuple(
            target
            for target in self.targets
            if target.name not in kwargs and not (target.is_last and 0 <= target.index < len(args))
        )
        if len(targets) == len(self.targets):
            return self
        needed: set[int] = set()
        wanted = [target.node for target in targets]
        while wanted:
            index = wanted.pop()
            if index not in needed:
                needed.add(index)
                wanted += [taken for _, taken in self.nodes[index].takes]
        numbers = {old: new for new, old in enumerate(sorted(needed))}
        nodes = tuple(
            DependencyNode(
                node.provider,
                node.kind,
                node.scope,
                node.label,
                tuple((name, numbers[taken]) for name, taken in node.takes),
                node.context,
            )
            for node in (self.nodes[old] for old in numbers)
        )
        return InjectionPlan(nodes, tuple(_Target(p.name, p.index, p.is_last, numbers[p.node]) for p in targets))


def is_dependency(parameter: inspect.Parameter, kind: Any) -> bool:
    """Return whether a provider fills in a parameter annotated as `kind`."""
    return _dependency(parameter, kind) is not None


def plan_dependencies(
    function: Callable[..., Any], *, owner: str, overrides: Mapping[Provider, Provider] | None = None
) -> InjectionPlan | None:
    """Return the plan of `function`; None if it depends on nothing.

    Args:
        owner: its task's name, for errors.
        overrides: replacements of providers.

    Raises:
        InvalidOption: providers form a cycle, or one cannot be called; the message names the chain.
        NameError: an annotation contains a name that is not defined yet.
    """
    planner = _Planner(overrides or {})
    targets = planner.targets(function, owner)
    return InjectionPlan(tuple(planner.nodes), tuple(targets)) if targets else None


class _Planner:
    def __init__(self, overrides: Mapping[Provider, Provider]) -> None:
        self._overrides = overrides
        self._numbers: dict[tuple[Provider, Scope], int] = {}
        self.nodes: list[DependencyNode] = []

    def targets(self, function: Callable[..., Any], owner: str) -> list[_Target]:
        parameters = list(_parameters(function, f"task {owner}"))
        found: list[_Target] = []
        for index, (parameter, kind) in enumerate(parameters):
            dependency = _dependency(parameter, kind)
            if dependency is None:
                continue
            chain = (f"task {owner}", parameter.name)
            if parameter.kind not in (_POSITIONAL, inspect.Parameter.KEYWORD_ONLY):
                raise _refusal(chain, "a dependency needs a parameter passed by keyword")
            behind = [
                (other, annotated)
                for other, annotated in parameters[index + 1 :]
                if other.kind in _BY_POSITION and not is_dependency(other, annotated)
            ]
            travel = [other for other, annotated in behind if not _is_context(annotated)]
            if travel and parameter.default is not inspect.Parameter.empty:
                raise _refusal(
                    chain,
                    f"{travel[0].name!r} follows it and is positional: put the dependency last, or after a `*`",
                )
            found.append(
                _Target(
                    parameter.name,
                    index if parameter.kind is _POSITIONAL else -1,
                    is_last=not behind,
                    node=self._number(dependency, chain, ()),
                )
            )
        return found

    def _number(self, dependency: Dependency, chain: tuple[str, ...], path: tuple[Provider, ...]) -> int:
        provider = self._overrides.get(dependency.provider, dependency.provider)
        chain = (*chain, _label(provider))
        if provider in path:
            raise _refusal(chain, "they depend on each other in a cycle")
        key = (provider, dependency.scope)
        if key not in self._numbers:
            node = self._node(provider, dependency.scope, chain, (*path, provider))
            self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[key]

    def _node(
        self, provider: Provider, scope: Scope, chain: tuple[str, ...], path: tuple[Provider, ...]
    ) -> DependencyNode:
        takes: list[tuple[str, int]] = []
        context: str | None = None
        for parameter, kind in _parameters(provider, " -> ".join(chain)):
            dependency = _dependency(parameter, kind)
            is_context = _is_context(kind)
            if dependency is None and not is_context:
                if parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC:
                    raise _refusal(
                        chain,
                        f"parameter {parameter.name!r} has no value: make it a dependency or a Context, or give it a "
                        "default",
                    )
                continue
            if parameter.kind in (*_VARIADIC, inspect.Parameter.POSITIONAL_ONLY):
                raise _refusal(chain, f"{parameter.name!r} must accept a keyword argument")
            if dependency is None:
                if scope == "worker":
                    raise _refusal(chain, "a worker dependency outlives every task, so it has no Context")
                context = parameter.name
                continue
            if scope == "worker" and dependency.scope == "task":
                raise _refusal(
                    (*chain, parameter.name),
                    "a worker dependency cannot depend on a task dependency: give that one scope='worker' as well",
                )
            takes.append((parameter.name, self._number(dependency, (*chain, parameter.name), path)))
        return DependencyNode(provider, _kind(provider), scope, _label(provider), tuple(takes), context)


def _dependency(parameter: inspect.Parameter, kind: Any) -> Dependency | None:
    if isinstance(parameter.default, Dependency):
        return parameter.default
    if typing.get_origin(kind) is Annotated:
        return next((extra for extra in kind.__metadata__ if isinstance(extra, Dependency)), None)
    return None


def _is_context(kind: Any) -> bool:
    return is_injected(kind, Context)


def _parameters(function: Callable[..., Any], where: str) -> Iterator[tuple[inspect.Parameter, Any]]:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        # Classes and functions in C have no signature; they are called without arguments.
        return
    hints = _hints(function, where)
    for parameter in signature.parameters.values():
        yield parameter, hints.get(parameter.name, Any)


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if isinstance(target, type):
        target = target.__init__  # type: ignore[misc]  # of whatever class it is
    elif not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except AttributeError as error:
        # The module is still being imported, so the name may be defined later.
        raise NameError(str(error)) from error
    except (SyntaxError, TypeError) as error:
        raise InvalidOption(f"{where}: an annotation is invalid: {error}") from error


def _kind(provider: Provider) -> Kind:
    target: Any = provider
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    if inspect.isasyncgenfunction(target):
        return "async generator"
    if inspect.isgeneratorfunction(target):
        return "generator"
    return "coroutine" if inspect.iscoroutinefunction(target) else "plain"


def _label(provider: Provider) -> str:
    target: Any = provider
    while isinstance(target, functools.partial):
        target = target.func
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def _refusal(chain: tuple[str, ...], reason: str) -> InvalidOption:
    return InvalidOption(f"{' -> '.join(chain)}: {reason}")
