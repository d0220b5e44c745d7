"""Functions of tasks, with what their options derive from the arguments of a call."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from taskmq.client.producer import AppServices
from taskmq.errors import InvalidOption
from taskmq.injection.plan import is_dependency, plan_dependencies
from taskmq.injection.resolve import Dependencies, inject_async, inject_sync
from taskmq.model.codec import Signature
from taskmq.model.keys import unique_key
from taskmq.model.values.return_type import ReturnType
from taskmq.options.keys import ArgumentKey, OrderKey
from taskmq.options.limits import TaskLimit, bind_limits
from taskmq.options.plans import CallPlan, TaskPlan
from taskmq.options.uniqueness import UniqueCall
from taskmq.run.context import Context

_NO_APP: Final = Dependencies()


class TaskFunction:
    """The function of a task, with its validated options.

    Attributes:
        name: the task's name in messages.
        plan: the task's options.
        call_plan: default options of its calls.
        function: the function itself.
        signature: encodes and decodes its arguments.
        order_key: derives the order keys of its jobs; None if they have no order.
        limits: limits that its runs share across all workers.
        idempotency_key: derives the keys under which its work is done once; None if only calls have keys.
    """

    def __init__(self, function: Callable[..., Any], plan: TaskPlan) -> None:
        self.name: str = plan.name
        self.plan = plan
        self.call_plan: CallPlan = plan.call
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
        if self.signature.is_resolved:
            # Resolved later if a provider's annotation names something that is not defined yet.
            with suppress(NameError):
                self.call = self._with_dependencies()

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function that a worker calls, which provides the function's dependencies if it has any.

        Raises:
            InvalidOption: a provider cannot be called; the message names the chain that leads to it.
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
        """Services of the task's app.

        Raises:
            InvalidOption: the task belongs to no app yet.
        """
        if self._services is None:
            raise InvalidOption(
                f"task {self.name} belongs to no app yet: call app.include({self.function.__module__!r}) in the "
                "app's module and import that here; TaskMQ(include=...) alone imports modules only when app.tasks "
                "is first read"
            )
        return self._services

    @property
    def is_bound(self) -> bool:
        return self._services is not None

    def bind(self, services: AppServices) -> None:
        """Make the task belong to the app with these services."""
        self._services = services

    def unique_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tenant: str | None) -> UniqueCall | None:
        """Return the uniqueness rule of a call; None if the task's jobs are not unique.

        Raises:
            InvalidArguments: the arguments yield no key.
        """
        rule = self.plan.unique
        if rule is None or self._unique_key is None:
            return None
        return UniqueCall(unique_key(self.name, self._unique_key.of(args, kwargs), tenant=tenant), rule)

    def limit_keys(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str] | None:
        """Return the keys of a call's limits by their ids; None if no limit of the task has keys.

        Raises:
            InvalidArguments: the arguments yield no key.
        """
        return {limit.id: key for limit in self.limits if (key := limit.key_of(args, kwargs)) is not None} or None

    def with_default_queue(self, queue: str) -> None:
        """Set the queue of a task whose options do not name one."""
        self.call_plan = replace(self.call_plan, queue=queue)

    @property
    def returns(self) -> ReturnType:
        if self._returns is None:
            # A task that keeps no results may return anything.
            self._returns = ReturnType(Any) if self.plan.result is False else self.signature.return_type()
        return self._returns

    def _with_dependencies(self) -> Callable[..., Any]:
        plan = plan_dependencies(self.function, owner=self.name)
        if plan is None:
            return self.function
        if self.plan.executor == "process" and (node := plan.first_async) is not None:
            raise InvalidOption(
                f"task {self.name}: its dependency {node.label} is asynchronous, and a task with executor='process' "
                "has no event loop: make the provider a plain function"
            )
        wrap = inject_async if self.plan.executor == "async" else inject_sync
        return wrap(self.function, plan, self._dependencies, self.name)

    def _dependencies(self) -> Dependencies:
        return _NO_APP if self._services is None else self._services.dependencies
