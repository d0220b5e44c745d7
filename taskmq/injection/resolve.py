"""Resolution of a task's dependencies: calls the providers and closes their contexts.

Around every run of a function with dependencies:

    resolve, in the plan's order -> the function -> close the contexts, the last first

For a coroutine function this happens on the loop, where its plain providers run too, so they should not block. For a
plain function it happens in its thread, and only asynchronous providers run on the worker's loop.

Values with worker scope live in a `Pool`. They are created for the first run that needs them, while others wait, and
closed when the worker has drained. A failure is not cached, so the next run tries again. Outside a worker there is no
pool, and the worker scope is the call.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

from taskmq.errors import UnsupportedFeature
from taskmq.injection.plan import DependencyNode, InjectionPlan, Provider, plan_dependencies
from taskmq.run.context import Context, current_context, leave_run

_log = logging.getLogger("taskmq.worker")

T = TypeVar("T")
_Ended = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

_NOT_ENDED: Final[_Ended] = (None, None, None)


class Dependencies:
    """Dependencies of an app's tasks: replacements, and values that live as long as a worker."""

    def __init__(self) -> None:
        self.overrides: dict[Provider, Provider] = {}
        self.pool: Pool | None = None
        self._workers = 0
        self._lock = threading.Lock()

    @contextmanager
    def override(self, provider: Provider, replacement: Provider) -> Generator[None]:
        """Call `replacement` wherever `provider` would be called."""
        before = self.overrides
        self.overrides = {**before, provider: replacement}
        try:
            yield
        finally:
            self.overrides = before

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Keep values with the scope of the worker until the end of the block; workers of one loop share them."""
        with self._lock:
            self._workers += 1
            pool = self.pool = self.pool or Pool(asyncio.get_running_loop())
        try:
            yield
        finally:
            with self._lock:
                self._workers -= 1
                is_last = self._workers == 0
                if is_last:
                    self.pool = None
            if is_last:
                await pool.aclose()

    @contextmanager
    def working_without_loop(self) -> Generator[None]:
        """Keep them like `working`, for a process that runs tasks and has no loop."""
        pool = self.pool = Pool(None)
        try:
            yield
        finally:
            self.pool = None
            pool.close()

    def current(self, plan: InjectionPlan, function: Callable[..., Any], owner: str) -> InjectionPlan:
        """Return the plan with the present replacements."""
        if not self.overrides:
            return plan
        return plan_dependencies(function, owner=owner, overrides=self.overrides) or plan


class Pool:
    """Values of providers for a whole worker. Used from its loop and from threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.thread: int = threading.get_ident()
        self._lock = threading.Lock()
        self._made: dict[tuple[Any, ...], concurrent.futures.Future[Any]] = {}
        self._open: list[tuple[DependencyNode, _Opened]] = []

    def claim(self, node: DependencyNode, arguments: dict[str, Any]) -> "tuple[concurrent.futures.Future[Any], bool]":
        """Return the future of the node's value, and whether the caller must create the value."""
        # By its arguments, too: a replacement further down creates another value.
        key = (node.provider, *((name, id(value)) for name, value in arguments.items()))
        with self._lock:
            found = self._made.get(key)
            if found is not None and not (found.done() and found.exception() is not None):
                return found, False
            made = self._made[key] = concurrent.futures.Future[Any]()
            # From now on no waiter can cancel it.
            made.set_running_or_notify_cancel()
            return made, True

    def keep(self, node: DependencyNode, opened: "_Opened") -> None:
        with self._lock:
            self._open.append((node, opened))

    async def aclose(self) -> None:
        """Close everything, the last first. Errors are logged and do not stop the rest."""
        while (last := self._last()) is not None:
            node, opened = last
            with _log_failure(node):
                await opened.aexit(_NOT_ENDED)

    def close(self) -> None:
        """Close everything if all providers are synchronous."""
        while (last := self._last()) is not None:
            node, opened = last
            with _log_failure(node):
                opened.exit(_NOT_ENDED)

    def _last(self) -> "tuple[DependencyNode, _Opened] | None":
        with self._lock:
            return self._open.pop() if self._open else None


def inject_async(
    function: Callable[..., Any], plan: InjectionPlan, dependencies: Callable[[], Dependencies], owner: str
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function that resolves the dependencies of `function`."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        known = dependencies()
        needed = known.current(plan, function, owner).without(args, kwargs)
        async with AsyncExitStack() as stack:
            values = await _resolve(needed, known.pool, stack, owner)
            args, kwargs = needed.insert(args, kwargs, values)
            return await function(*args, **kwargs)

    return functools.wraps(function)(call)


def inject_sync(
    function: Callable[..., Any], plan: InjectionPlan, dependencies: Callable[[], Dependencies], owner: str
) -> Callable[..., Any]:
    """Return a function that resolves the dependencies of `function`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        known = dependencies()
        needed = known.current(plan, function, owner).without(args, kwargs)
        with ExitStack() as stack:
            values = _resolve_blocking(needed, known.pool, stack, owner)
            args, kwargs = needed.insert(args, kwargs, values)
            return function(*args, **kwargs)

    return functools.wraps(function)(call)


async def _resolve(plan: InjectionPlan, pool: Pool | None, stack: AsyncExitStack, owner: str) -> dict[int, Any]:
    values: dict[int, Any] = {}
    for index, node in enumerate(plan.nodes):
        arguments = _arguments(node, values, owner)
        if node.scope == "worker" and pool is not None:
            values[index] = await _resolve_shared(pool, node, arguments)
        else:
            opened = _Opened(node, arguments)
            values[index] = await opened.aenter()
            if opened.has_end:
                stack.push_async_exit(_close_callback_async(opened))
    return values


async def _resolve_shared(pool: Pool, node: DependencyNode, arguments: dict[str, Any]) -> Any:
    while True:
        future, is_mine = pool.claim(node, arguments)
        if not is_mine:
            with contextlib.suppress(_Failed):
                return await asyncio.wrap_future(future)
            continue
        opened = _Opened(node, arguments)
        try:
            # The values of a whole worker outlive the job that came first.
            with leave_run():
                value = await opened.aenter()
        except BaseException:
            # The waiters try again, each separately.
            future.set_exception(_Failed())
            raise
        _finish_value(pool, node, opened, future, value)
        return value


def _resolve_blocking(plan: InjectionPlan, pool: Pool | None, stack: ExitStack, owner: str) -> dict[int, Any]:
    values: dict[int, Any] = {}
    for index, node in enumerate(plan.nodes):
        arguments = _arguments(node, values, owner)
        if node.scope == "worker" and pool is not None:
            values[index] = _shared_blocking(pool, node, arguments, owner)
        else:
            opened = _Opened(node, arguments)
            values[index] = _enter_blocking(opened, pool, owner)
            if opened.has_end:
                stack.push(_close_callback(opened, pool, owner))
    return values


def _shared_blocking(pool: Pool, node: DependencyNode, arguments: dict[str, Any], owner: str) -> Any:
    while True:
        future, is_mine = pool.claim(node, arguments)
        if not is_mine:
            if not future.done() and threading.get_ident() == pool.thread and pool.loop is not None:
                raise _no_loop(node, owner)
            with contextlib.suppress(_Failed):
                return future.result()
            continue
        opened = _Opened(node, arguments)
        try:
            # The values of a whole worker outlive the job that came first.
            with leave_run():
                value = _enter_blocking(opened, pool, owner)
        except BaseException:
            future.set_exception(_Failed())
            raise
        _finish_value(pool, node, opened, future, value)
        return value


def _enter_blocking(opened: "_Opened", pool: Pool | None, owner: str) -> Any:
    if not opened.node.is_async:
        return opened.enter()
    return _on_loop(opened.aenter, opened.node, pool, owner)


def _on_loop(call: Callable[[], Awaitable[T]], node: DependencyNode, pool: Pool | None, owner: str) -> T:
    if pool is None or pool.loop is None or threading.get_ident() == pool.thread:
        raise _no_loop(node, owner)

    async def run() -> T:
        return await call()

    coroutine = run()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, pool.loop)
    except RuntimeError as error:
        # The worker continued without this thread, and its loop is closed.
        coroutine.close()
        raise _no_loop(node, owner) from error
    return future.result()


def _no_loop(node: DependencyNode, owner: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"task {owner}: its dependency {node.label} is asynchronous, and there is no event loop that a plain "
        "function could wait for here: pass it by name, override it, or make the task a coroutine function"
    )


class _Failed(Exception):
    """The run that was creating the value failed."""


class _Opened:
    """A call of a provider, and the end of its context."""

    __slots__ = ("_arguments", "_manager", "node")

    def __init__(self, node: DependencyNode, arguments: dict[str, Any]) -> None:
        self.node: DependencyNode = node
        self._arguments = arguments
        self._manager: Any = None

    @property
    def has_end(self) -> bool:
        return self._manager is not None

    def enter(self) -> Any:
        if self.node.kind == "generator":
            manager = contextmanager(self.node.provider)(**self._arguments)
            value = manager.__enter__()
            self._manager = manager
            return value
        return self.node.provider(**self._arguments)

    async def aenter(self) -> Any:
        match self.node.kind:
            case "coroutine":
                return await self.node.provider(**self._arguments)
            case "async generator":
                manager = asynccontextmanager(self.node.provider)(**self._arguments)
                value = await manager.__aenter__()
                self._manager = manager
                return value
            case _:
                return self.enter()

    # A provider that swallows the task's exception does not make it a success, so these return nothing.

    def exit(self, ended: _Ended) -> None:
        self._manager.__exit__(*ended)

    async def aexit(self, ended: _Ended) -> None:
        if self.node.kind == "async generator":
            await self._manager.__aexit__(*ended)
        else:
            self.exit(ended)


def _arguments(node: DependencyNode, values: dict[int, Any], owner: str) -> dict[str, Any]:
    arguments = {name: values[index] for name, index in node.takes}
    if node.context is not None:
        arguments[node.context] = current_context.get() or Context.create_detached(owner)
    return arguments


def _finish_value(
    pool: Pool, node: DependencyNode, opened: _Opened, future: "concurrent.futures.Future[Any]", value: object
) -> None:
    if opened.has_end:
        pool.keep(node, opened)
    future.set_result(value)


def _close_callback(opened: _Opened, pool: Pool | None, owner: str) -> Callable[..., None]:
    def end(*ended: Any) -> None:
        if opened.node.is_async:
            _on_loop(lambda: opened.aexit(ended), opened.node, pool, owner)
        else:
            opened.exit(ended)

    return end


def _close_callback_async(opened: _Opened) -> Callable[..., Coroutine[Any, Any, None]]:
    async def end(*ended: Any) -> None:
        await opened.aexit(ended)

    return end


@contextmanager
def _log_failure(node: DependencyNode) -> Generator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - the provider's own code
        _log.exception("closing dependency %s failed", node.label)
