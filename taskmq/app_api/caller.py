"""The one on whose behalf calls of the API are made, and what the classes of calls have in common."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from taskmq.app import TaskMQ
from taskmq.contracts.identity import AccountStore, Actor
from taskmq.model.identity import Permission

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration

__all__ = ["ApiCaller", "AppAccounts", "AppCalls"]


class ApiCaller(Protocol):
    """The sender of a request, or the person at the command line, with their tenant and rights."""

    @property
    def tenant(self) -> str | None:
        """The tenant of the call: "" for things without a tenant, None for those of all tenants."""
        ...

    @property
    def name(self) -> str:
        """The caller's name in histories."""
        ...

    def actor(self, note: str = "") -> Actor:
        """Return the actor that the audit names for the call."""
        ...

    async def note_action(
        self, app: TaskMQ, action: str, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Write what the caller is about to do at the broker or in the state into the audit, before it is done.

        Args:
            action: a noun and a verb, such as `queue.purge`.
            subject: the name of what it is done to.
            after: facts about it; no arguments of tasks.
            note: why.
        """
        ...

    def may(self, permission: Permission, tenant: str | None) -> bool:
        """Whether the caller has a permission in that tenant; None: on the whole instance."""
        ...

    def allows(self, task: str) -> bool:
        """Whether the caller may call the task."""
        ...

    @property
    def is_at_app(self) -> bool:
        """Whether the caller has the app at hand, so that no right holds them back."""
        ...

    @property
    def allows_all(self) -> bool:
        """Whether the caller may call whatever task there is."""
        ...


class AppCalls:
    """Calls about one resource of an app."""

    def __init__(self, app: TaskMQ, caller: ApiCaller) -> None:
        self._app = app
        self._caller = caller


class AppAccounts(AppCalls):
    """Calls about the users and tenants of an app.

    Args:
        administration: returns what changes them, which needs argon2-cffi; asked for changes alone.
    """

    def __init__(
        self, app: TaskMQ, caller: ApiCaller, administration: "Callable[[], IdentityAdministration]"
    ) -> None:
        super().__init__(app, caller)
        self._administration = administration

    @property
    def _accounts(self) -> AccountStore:
        return self._app.sessions.store().identity.accounts
