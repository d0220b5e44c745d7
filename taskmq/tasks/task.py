"""A task: a function that can be called here, or sent to be run by a worker."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, ParamSpec, TypeVar, Unpack, cast

from msgspec.structs import replace

from taskmq.client.services import AppServices
from taskmq.errors import InvalidOption
from taskmq.injection.plan import is_dependency, plan_dependencies
from taskmq.injection.resolve import Dependencies, provided_async, provided_sync
from taskmq.model.codec import ReturnType, Signature
from taskmq.model.keys import unique_key
from taskmq.options.keys import ArgumentKey, OrderKey
from taskmq.options.limits import TaskLimit, bind_limits
from taskmq.options.task_options import TaskPlan
from taskmq.options.uniqueness import UniqueCall
from taskmq.run.context import Context, current_context
from taskmq.tasks.call import Call
from taskmq.tasks.job_options import JobOptions

__all__ = ["AsyncTask", "SyncTask", "Task"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_NO_APP: Final = Dependencies()


class Task(Call[P, R_co]):
    """A registered function: call it to run it here, `send` it to have a worker run it.

    Attributes:
        name: under which messages call it.
        plan: its options, checked.
        function: the function itself.
        signature: how its arguments travel.
        order_key: what makes the keys of its jobs; None when they have no order.
        limits: those that its runs share with all workers.
        idempotency_key: what makes the keys under which its work is done once; None when only calls have some.
    """

    def __init__(self, function: Callable[..., Any], plan: TaskPlan) -> None:
        super().__init__(self, plan.call)
        self.name: str = plan.name
        self.plan = plan
        self.function = function
        self.signature: Signature = Signature(function, owner=plan.name, injected=Context, is_provided=is_dependency)
        self.limits: tuple[TaskLimit, ...] = bind_limits(plan.limits, function, self.signature, owner=plan.name)
        self.order_key: OrderKey | None = (
            None if plan.order_key is None else OrderKey(plan.order_key, function, self.signature, owner=plan.name)
        )
        maker = plan.idempotency.maker
        self.idempotency_key: ArgumentKey | None = (
            None
            if maker is None
            else ArgumentKey(maker, function, self.signature, owner=plan.name, option="idempotency_key")
        )
        rule = plan.unique
        self._unique_key: ArgumentKey | None = (
            None
            if rule is None
            else ArgumentKey(rule.maker, function, self.signature, owner=plan.name, option="unique")
        )
        self._services: AppServices | None = None
        self._returns: ReturnType | None = None
        self.__doc__ = function.__doc__
        self.__name__: str = getattr(function, "__name__", plan.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        if self.signature.is_resolved:
            # Later where a provider's annotation names what is not defined yet.
            with suppress(NameError):
                self.call = self._with_dependencies()

    def __reduce__(self) -> str:
        """Pickle by reference, as a function does: another process finds the task of its own module."""
        return self.function.__qualname__

    def __copy__(self) -> "Task[P, R_co]":
        """Copy the task itself; by `__reduce__` a copy would be the very same object."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function as it is run: with what it depends on, where it depends on anything.

        Raises:
            InvalidOption: a provider cannot be called; names the chain that leads to it.
        """
        try:
            return self._with_dependencies()
        except NameError as error:
            raise InvalidOption(
                f"task {self.name}: an annotation of a dependency cannot be resolved ({error}); import the name at "
                "module level, outside of `if TYPE_CHECKING`"
            ) from error

    @property
    def services(self) -> AppServices:
        """The services of the app that the task belongs to.

        Raises:
            InvalidOption: none has yet.
        """
        if self._services is None:
            raise InvalidOption(
                f"task {self.name} belongs to no app yet: say app.include({self.__module__!r}) in the app's module "
                "and import that here; TaskMQ(include=...) alone waits for the first look at app.tasks"
            )
        return self._services

    @property
    def is_bound(self) -> bool:
        return self._services is not None

    def bind(self, services: AppServices) -> None:
        """Make it a task of the app whose services these are."""
        self._services = services

    def unique_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tenant: str | None) -> UniqueCall | None:
        """Return what a call is to be the only one of; None where the task's jobs are not unique.

        Raises:
            InvalidArguments: they make no key.
        """
        rule = self.plan.unique
        if rule is None or self._unique_key is None:
            return None
        return UniqueCall(unique_key(self.name, self._unique_key.of(args, kwargs), tenant=tenant), rule)

    def with_default_queue(self, queue: str) -> None:
        """Set the queue of a task whose options do not name one."""
        self._plan = replace(self._plan, queue=queue)

    @property
    def returns(self) -> ReturnType:
        if self._returns is None:
            # A task that keeps no results may return anything.
            self._returns = ReturnType(Any) if self.plan.result is False else self.signature.return_type()
        return self._returns

    @property
    def queue(self) -> str:
        """Where calls go unless they say otherwise."""
        return self._plan.queue

    def options(self, **options: Unpack[JobOptions]) -> Call[P, R_co]:
        """Return the same task with other options for its calls; nothing about the task changes.

        Raises:
            InvalidOption: an option is unknown or has a value that it cannot have.
        """
        return self.with_options(options)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def _with_dependencies(self) -> Callable[..., Any]:
        plan = plan_dependencies(self.function, owner=self.name)
        if plan is None:
            return self.function
        if self.plan.executor == "process" and (node := plan.first_async) is not None:
            raise InvalidOption(
                f"task {self.name}: its dependency {node.label} is asynchronous, and a task with executor='process' "
                "has no event loop: make the provider a plain function"
            )
        wrap = provided_async if isinstance(self, AsyncTask) else provided_sync
        return wrap(self.function, plan, self._dependencies, self.name)

    def _dependencies(self) -> Dependencies:
        return _NO_APP if self._services is None else self._services.dependencies

    def _local(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.signature.takes_context:
            context = current_context.get() or Context.detached(self.name)
            args, kwargs = self.signature.with_context((args, kwargs), context)
        return self.call(*args, **kwargs)


class SyncTask(Task[P, R_co]):
    """A task whose function is a plain one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and now."""
        return cast("R_co", self._local(args, kwargs))


class AsyncTask(Task[P, R_co]):
    """A task whose function is a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function here; await what it returns."""
        return cast("Coroutine[Any, Any, R_co]", self._local(args, kwargs))
