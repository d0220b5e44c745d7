"""The API of the local app, called by the person at the command line."""

from typing import TYPE_CHECKING, Any

from taskmq.app import TaskMQ
from taskmq.app_api.app_api import AppApi
from taskmq.cli.actor import me, note_change
from taskmq.contracts.identity import Actor
from taskmq.errors import BrokerUnavailable, StateUnavailable, UnsupportedFeature
from taskmq.model.identity import Permission

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.app_api.accounts.tokens import AppTokens
    from taskmq.cli.dead_letters import OperatorDeadLetters
    from taskmq.events.stream import EventStream
    from taskmq.model.states import Cancellation
    from taskmq.operations.jobs import JobReport


class Operator:
    """Caller with all permissions: the person at the command line.

    Args:
        tenant: the tenant that calls are about; None: all tenants.
    """

    def __init__(self, tenant: str | None = None) -> None:
        self.tenant = tenant

    @property
    def name(self) -> str:
        """The person's name in histories."""
        return me().user

    def actor(self, note: str = "") -> Actor:
        """Return the actor for the audit."""
        return me(note)

    async def note_action(
        self, app: TaskMQ, action: str, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Record a change in the audit before it is made; without an entry, warn and continue."""
        await note_change(app, action, subject, tenant=self.tenant or "", after=after, why=note)

    def may(self, permission: Permission, tenant: str | None) -> bool:
        """Return True: the operator has every permission."""
        del permission, tenant
        return True

    def allows(self, task: str) -> bool:
        """Return True: the operator may call every task."""
        del task
        return True

    @property
    def roles(self) -> None:
        """The caller's roles: None, as the person is unidentified."""
        return

    @property
    def is_at_app(self) -> bool:
        """Whether the caller is at the app: always true."""
        return True

    @property
    def allows_all(self) -> bool:
        """Whether the caller may call every task: always true."""
        return True


class OperatorApi(AppApi):
    """API of a local app, for a caller with all permissions. Imported only without a server.

    Args:
        tenant: the tenant that calls are about; None: all tenants.
    """

    def __init__(self, app: TaskMQ, tenant: str | None = None) -> None:
        super().__init__(app, Operator(tenant), administration=self._administer)

    async def report(self, job: str, *, within: float, depth: int | None) -> "JobReport":
        """Return what is known about a job that was sent to the broker; see `report_job`."""
        from taskmq.operations.jobs import report_job

        return await report_job(self._app, job, within=within, depth=depth)

    async def result(self, job: str, *, within: float) -> Any:
        """Return the result of a job."""
        return await self._app.job(job).aresult(timeout=within)

    async def cancel_sent(self, job: str, reason: str, *, remember: str) -> "Cancellation":
        """Cancel a job that was sent to the broker; for `remember`, workers end it on delivery."""
        await self._caller.note_action(self._app, "job.cancel", subject=job, note=reason)
        return await self._app.job(job).acancel(reason, remember=remember)

    async def locate_missing_job(self, job: str) -> str:
        """Return a hint where a job may be that the store lacks; "" if nothing is known."""
        from taskmq.operations.jobs import locate_missing_job

        try:
            return await locate_missing_job(self._app, job)
        except (BrokerUnavailable, StateUnavailable, UnsupportedFeature):
            return ""

    @property
    def address(self) -> str:
        """The address of the broker, without a password."""
        return self._app.sessions.current().broker.address

    def events(self) -> "EventStream":
        """Return the stream of events of jobs and workers."""
        return self._app.events()

    @property
    def dead_letters(self) -> "OperatorDeadLetters":
        """Dead letters, without a limit on how many are read."""
        from taskmq.cli.dead_letters import OperatorDeadLetters

        return OperatorDeadLetters(self._app, self._caller)

    @property
    def tokens(self) -> "AppTokens":
        """API tokens of all users."""
        return self.tokens_of(None)

    def for_tenant(self, tenant: str | None) -> "OperatorApi":
        """Return the API for another tenant."""
        return OperatorApi(self._app, tenant)

    def _administer(self) -> "IdentityAdministration":
        from taskmq.access import IdentityAdministration, PasswordHasher

        return IdentityAdministration(self._app.sessions.store().identity, hasher=PasswordHasher())
