"""The asynchronous client of one server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from taskmq.api.health import HealthReport, SystemHealth
from taskmq.api.jobs import SubmittedJob
from taskmq.api.sign_in import ServerView
from taskmq.errors import ServerUnavailable
from taskmq.http.aio.accounts import (
    AsyncAccountCalls,
    AsyncAuditCalls,
    AsyncSessionCalls,
    AsyncTenantCalls,
    AsyncTokenCalls,
    AsyncUserCalls,
)
from taskmq.http.aio.bulks import AsyncBulkCalls
from taskmq.http.aio.connection import AsyncHttpConnection
from taskmq.http.aio.dead_letters import AsyncDeadLetterCalls
from taskmq.http.aio.definitions import AsyncDefinitionCalls, AsyncTaskCalls
from taskmq.http.aio.history import AsyncAlertCalls, AsyncFailureGroupCalls, AsyncFigureCalls, AsyncLogCalls
from taskmq.http.aio.jobs import AsyncJobCalls
from taskmq.http.aio.nodes import AsyncNodeCalls, AsyncResourceCalls
from taskmq.http.aio.pools import AsyncPoolCalls, AsyncQuotaCalls
from taskmq.http.aio.queues import AsyncQueueCalls
from taskmq.http.aio.schedules import AsyncReactionCalls, AsyncScheduleCalls
from taskmq.http.aio.workers import AsyncWorkerCalls
from taskmq.http.aio.workflows import AsyncRunCalls, AsyncWorkflowCalls
from taskmq.http.bodies import new_key
from taskmq.http.events import EventLines, LiveEvent
from taskmq.http.retries import Retries

_RECONNECT_SECONDS = 3.0


class AsyncClient:
    """A client of a taskmq server. It connects on first use; close it, or use it as a context manager.

    Failures raise the errors of `taskmq.errors`, as in a program with the app: `JobNotFound`, `JobConflict`,
    `UnknownTask`, `NotPermitted`. `ServerUnavailable` means that there was no response, and `RequestRefused` covers
    errors without their own class.

    Args:
        url: the server's URL with its root path. Default: `$TASKMQ_SERVER`.
        token: an API token, or a session's token. Default: `$TASKMQ_TOKEN`; "" for none.
        tenant: the tenant of all calls. Default: the caller's only tenant.
        timeout: the time limit of a response, in seconds.
        retries: the retry policy.
        http: a custom httpx client, for proxies and certificates; it is not closed.
        insecure: allow tokens and passwords over `http://` to another machine, where others can read them. Default:
            False, unless `$TASKMQ_INSECURE` is 1.
        max_age: the largest age of lists and counts, in seconds, if the server reads them from a replica; 0 for
            current ones. They are never older than the client's own changes. Default: the server's limit.

    Raises:
        InvalidSetting: the URL or token is invalid, or the token could be read on the way.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: Retries = Retries(),  # noqa: B008 - a value
        http: httpx.AsyncClient | None = None,
        insecure: bool | None = None,
        max_age: float | None = None,
    ) -> None:
        self._connection = AsyncHttpConnection(
            url,
            token=token,
            tenant=tenant,
            timeout=timeout,
            retries=retries,
            http=http,
            insecure=insecure,
            max_age=max_age,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.address}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Later calls open new ones."""
        await self._connection.aclose()

    def for_tenant(self, tenant: str | None) -> "AsyncClient":
        """Return a client for another tenant; both share their connections."""
        other = AsyncClient.__new__(AsyncClient)
        other._connection = self._connection.for_tenant(tenant)  # noqa: SLF001 - one of the same class
        return other

    @property
    def age(self) -> float:
        """Seconds by which the latest response of a read may be out of date; 0.0 if it is current."""
        return self._connection.freshness.age

    @property
    def jobs(self) -> AsyncJobCalls:
        """Jobs of the store: submit, list, change, cancel, and wait for results."""
        return AsyncJobCalls(self._connection)

    @property
    def logs(self) -> AsyncLogCalls:
        """Logs of jobs: read one job's log, or search all."""
        return AsyncLogCalls(self._connection)

    @property
    def figures(self) -> AsyncFigureCalls:
        """Metrics and failures of runs, per minute."""
        return AsyncFigureCalls(self._connection)

    @property
    def failure_groups(self) -> AsyncFailureGroupCalls:
        """Groups of failures by task and error: list, resolve, mute and reopen."""
        return AsyncFailureGroupCalls(self._connection)

    @property
    def alerts(self) -> AsyncAlertCalls:
        """Alerts, notices, alert rules and silences."""
        return AsyncAlertCalls(self._connection)

    @property
    def nodes(self) -> AsyncNodeCalls:
        """Host nodes: list, register, drain, resume and remove."""
        return AsyncNodeCalls(self._connection)

    @property
    def resources(self) -> AsyncResourceCalls:
        """Resources of host nodes: allocate, release, and read usage."""
        return AsyncResourceCalls(self._connection)

    @property
    def pools(self) -> AsyncPoolCalls:
        """Pools and scheduling policies of queues."""
        return AsyncPoolCalls(self._connection)

    @property
    def quotas(self) -> AsyncQuotaCalls:
        """Quotas of tenants and users."""
        return AsyncQuotaCalls(self._connection)

    @property
    def bulks(self) -> AsyncBulkCalls:
        """Bulk operations: start, wait for, and abort."""
        return AsyncBulkCalls(self._connection)

    @property
    def definitions(self) -> AsyncDefinitionCalls:
        """Definitions: versioned templates of jobs."""
        return AsyncDefinitionCalls(self._connection)

    @property
    def reactions(self) -> AsyncReactionCalls:
        """Reactions: list and show."""
        return AsyncReactionCalls(self._connection)

    @property
    def schedules(self) -> AsyncScheduleCalls:
        """Schedules: list, change, pause, run and backfill."""
        return AsyncScheduleCalls(self._connection)

    @property
    def workflows(self) -> AsyncWorkflowCalls:
        """Workflows: store, list and activate versions, and start runs."""
        return AsyncWorkflowCalls(self._connection)

    @property
    def runs(self) -> AsyncRunCalls:
        """Runs of workflows: list, inspect, signal, close, cancel and redrive."""
        return AsyncRunCalls(self._connection)

    @property
    def queues(self) -> AsyncQueueCalls:
        """Queues of the broker: list, pause, move and purge."""
        return AsyncQueueCalls(self._connection)

    @property
    def dead_letters(self) -> AsyncDeadLetterCalls:
        """Dead letters: group, list, replay and purge."""
        return AsyncDeadLetterCalls(self._connection)

    @property
    def tasks(self) -> AsyncTaskCalls:
        """Tasks that can be called."""
        return AsyncTaskCalls(self._connection)

    @property
    def workers(self) -> AsyncWorkerCalls:
        """Workers: list and control."""
        return AsyncWorkerCalls(self._connection)

    @property
    def account(self) -> AsyncAccountCalls:
        """The caller's account: sign in, sign out, change the password."""
        return AsyncAccountCalls(self._connection)

    @property
    def tokens(self) -> AsyncTokenCalls:
        """The caller's own API tokens: add, list and revoke."""
        return AsyncTokenCalls(self._connection)

    @property
    def sessions(self) -> AsyncSessionCalls:
        """The caller's own sessions: list and end."""
        return AsyncSessionCalls(self._connection)

    @property
    def users(self) -> AsyncUserCalls:
        """Users: add, list, change, erase, and set roles."""
        return AsyncUserCalls(self._connection)

    @property
    def tenants(self) -> AsyncTenantCalls:
        """Tenants: add, list, change, remove, and set members."""
        return AsyncTenantCalls(self._connection)

    @property
    def audit(self) -> AsyncAuditCalls:
        """The audit log of administrators and operators."""
        return AsyncAuditCalls(self._connection)

    async def is_ready(self) -> bool:
        """Return whether the server is ready: False if its store or the server itself does not answer."""
        try:
            await self._connection.ask("getReadiness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    async def is_live(self) -> bool:
        """Return whether the server answers."""
        try:
            await self._connection.ask("getLiveness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    async def health(self) -> HealthReport:
        """Return the health of the installation's parts."""
        return await self._connection.ask("getHealth", HealthReport)

    async def system_health(self) -> SystemHealth:
        """Return the health of the parts, schedulers, partitions and clocks, and the findings of `taskmq doctor`."""
        return await self._connection.ask("getSystemHealth", SystemHealth)

    async def server(self) -> ServerView:
        """Return the server's app, version and environment."""
        return await self._connection.ask("getServer", ServerView)

    async def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI 3.1 document of the API."""
        return await self._connection.ask("getOpenApi", dict[str, Any])

    async def send_event(self, source: str, data: Mapping[str, Any], *, key: str | None = None) -> SubmittedJob:
        """Send an external event, which starts the job of its source.

        Args:
            key: the event's id; repeating it returns the same job. Default: a new one.

        Raises:
            JobConflict: another event has the id.
        """
        query = {"source": source}
        return await self._connection.ask(
            "sendEvent", SubmittedJob, query=query, body=dict(data), key=key or new_key()
        )

    async def events(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        job_id: str | None = None,
        kinds: str | None = None,
        last_id: str | None = None,
        reconnect: bool = True,
    ) -> AsyncIterator[LiveEvent]:
        """Iterate over events of jobs and workers as they happen.

        Args:
            kinds: comma-separated kinds, such as `dead,retried`.
            last_id: the id of the last received event; later ones are returned first.
            reconnect: reconnect if the stream ends, without losing events that the server still has. Otherwise the
                iteration ends.
        """
        query = {"queue": queue, "task": task, "job_id": job_id, "event": kinds}
        while True:
            headers = {} if last_id is None else {"last-event-id": last_id}
            read = EventLines()
            try:
                async for line in self._connection.lines("followEvents", query=query, headers=headers):
                    event = read.add(line)
                    if event is not None:
                        last_id = event.id or last_id
                        yield event
            except ServerUnavailable:
                if not reconnect:
                    raise
            if not reconnect:
                return
            await asyncio.sleep(_RECONNECT_SECONDS)
