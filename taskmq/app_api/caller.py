"""The caller of the API, and base classes of its resources."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from taskmq.api.job_requests import JobTerms
from taskmq.app import TaskMQ
from taskmq.contracts.identity import AccountStore, Actor
from taskmq.errors import InvalidOption, NotPermitted
from taskmq.model.identity import Permission

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration


class ApiCaller(Protocol):
    """The user of a request or command, with their tenant and rights."""

    @property
    def tenant(self) -> str | None:
        """The tenant of the call: "" for objects without a tenant, None for all tenants."""
        ...

    @property
    def name(self) -> str:
        """The caller's name in histories."""
        ...

    def actor(self, note: str = "") -> Actor:
        """Return the actor to record in the audit log."""
        ...

    async def note_action(
        self, app: TaskMQ, action: str, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Write an audit entry before an action on the broker or the state.

        Args:
            action: a noun and a verb, such as `queue.purge`.
            subject: the name of the affected object.
            after: details of the action, without task arguments.
            note: the reason.
        """
        ...

    def may(self, permission: Permission, tenant: str | None) -> bool:
        """Whether the caller has a permission on that tenant; None for the whole instance."""
        ...

    def allows(self, task: str) -> bool:
        """Whether the caller may call the task."""
        ...

    @property
    def roles(self) -> tuple[str, ...] | None:
        """The caller's roles in the tenant, with those they include, and groups; None for an unidentified caller."""
        ...

    @property
    def is_at_app(self) -> bool:
        """Whether the caller runs in the app's own process, without access restrictions."""
        ...

    @property
    def allows_all(self) -> bool:
        """Whether the caller may call every task."""
        ...


class AppCalls:
    """Operations on one resource of an app."""

    def __init__(self, app: TaskMQ, caller: ApiCaller) -> None:
        self._app = app
        self._caller = caller

    def _check_permission(self, task: str) -> None:
        """Raise `NotPermitted` if the caller may not call the task."""
        if not self._caller.allows(task):
            raise NotPermitted(f"you are not permitted to call task {task!r}")

    async def _check_options(self, body: JobTerms, task: str) -> None:
        """Check that a template of jobs has no options that only the app itself may set.

        Raises:
            InvalidOption: the owner is another user, or the queue is not the task's.
        """
        if self._caller.is_at_app:
            return
        if body.owner not in ("", self._caller.name):
            raise InvalidOption(f"owner {body.owner!r} is another user: omit it, or use your own name")
        if body.queue and body.queue != (await self._app.jobs.find_call(task, tenant=self._caller.tenant)).queue:
            raise InvalidOption(f"task {task!r} has its own queue: omit the queue")


class AppAccounts(AppCalls):
    """Operations on the users and tenants of an app.

    Args:
        administration: returns the administration, which needs argon2-cffi; called only for changes.
    """

    def __init__(
        self, app: TaskMQ, caller: ApiCaller, administration: "Callable[[], IdentityAdministration]"
    ) -> None:
        super().__init__(app, caller)
        self._administration = administration

    @property
    def _accounts(self) -> AccountStore:
        return self._app.sessions.store().identity.accounts
