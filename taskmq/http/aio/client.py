"""The client of one server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from taskmq.api.jobs import SubmittedJob
from taskmq.api.sign_in import ServerView
from taskmq.api.workers import HealthReport
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
from taskmq.http.aio.history import AsyncAlertCalls, AsyncFigureCalls, AsyncLogCalls
from taskmq.http.aio.jobs import AsyncJobCalls
from taskmq.http.aio.nodes import AsyncNodeCalls, AsyncResourceCalls
from taskmq.http.aio.pools import AsyncPoolCalls, AsyncQuotaCalls
from taskmq.http.aio.queues import AsyncQueueCalls
from taskmq.http.aio.schedules import AsyncScheduleCalls
from taskmq.http.aio.workers import AsyncWorkerCalls
from taskmq.http.aio.workflows import AsyncWorkflowCalls
from taskmq.http.bodies import new_key
from taskmq.http.events import EventLines, LiveEvent
from taskmq.http.retries import Retries

__all__ = ["AsyncClient"]

_RECONNECT_SECONDS = 3.0


class AsyncClient:
    """A taskmq server, as a program sees it. Connects on first use; close it, or use it as a context.

    What goes wrong is an error of `taskmq.errors`, the same as in a program that has the app: `JobNotFound`,
    `JobConflict`, `UnknownTask`, `NotPermitted`; `ServerUnavailable` where there was no answer, and `RequestRefused`
    for what has no error class.

    Args:
        url: the server's, with its root path. Default: `$TASKMQ_SERVER`.
        token: an API token, or a session's. Default: `$TASKMQ_TOKEN`; "": none.
        tenant: whose things are meant. Default: that of the caller, who has one.
        timeout: seconds that the server has for an answer.
        retries: how often a call is made again.
        http: a client of httpx of one's own, for proxies and certificates; it is not closed.
        insecure: tokens and passwords may go to another machine over `http://`, where every machine on the way can
            read them. Default: no, unless `$TASKMQ_INSECURE` is 1.

    Raises:
        InvalidSetting: the URL or the token cannot be, or others could read the token on the way.
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
    ) -> None:
        self._connection = AsyncHttpConnection(
            url, token=token, tenant=tenant, timeout=timeout, retries=retries, http=http, insecure=insecure
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
        """Close the connections; calls after that open new ones."""
        await self._connection.aclose()

    def for_tenant(self, tenant: str | None) -> "AsyncClient":
        """Return a client for another tenant; both share their connections."""
        other = AsyncClient.__new__(AsyncClient)
        other._connection = self._connection.for_tenant(tenant)  # noqa: SLF001 - one of the same class
        return other

    @property
    def jobs(self) -> AsyncJobCalls:
        """Submits, lists, changes and cancels jobs of the store, and waits for their results."""
        return AsyncJobCalls(self._connection)

    @property
    def logs(self) -> AsyncLogCalls:
        """Reads what the runs of jobs have logged, of one job or by a search."""
        return AsyncLogCalls(self._connection)

    @property
    def figures(self) -> AsyncFigureCalls:
        """Reads counts, times and failures of runs, by the minute."""
        return AsyncFigureCalls(self._connection)

    @property
    def alerts(self) -> AsyncAlertCalls:
        """Lists alerts and notices, and keeps their rules and silences."""
        return AsyncAlertCalls(self._connection)

    @property
    def nodes(self) -> AsyncNodeCalls:
        """Lists host nodes, registers, drains, resumes and removes them."""
        return AsyncNodeCalls(self._connection)

    @property
    def resources(self) -> AsyncResourceCalls:
        """Allocates resources of host nodes and releases them, and reads their use."""
        return AsyncResourceCalls(self._connection)

    @property
    def pools(self) -> AsyncPoolCalls:
        """Keeps the pools and policies by which it is decided whose turn it is."""
        return AsyncPoolCalls(self._connection)

    @property
    def quotas(self) -> AsyncQuotaCalls:
        """Keeps how much tenants and their users may submit and run."""
        return AsyncQuotaCalls(self._connection)

    @property
    def bulks(self) -> AsyncBulkCalls:
        """Begins operations on all jobs of a filter, and waits for or ends them."""
        return AsyncBulkCalls(self._connection)

    @property
    def definitions(self) -> AsyncDefinitionCalls:
        """Keeps the templates that jobs are made from, version by version."""
        return AsyncDefinitionCalls(self._connection)

    @property
    def schedules(self) -> AsyncScheduleCalls:
        """Lists, keeps, pauses, runs and backfills the schedules of the app."""
        return AsyncScheduleCalls(self._connection)

    @property
    def workflows(self) -> AsyncWorkflowCalls:
        """Lists, cancels and redrives workflows."""
        return AsyncWorkflowCalls(self._connection)

    @property
    def queues(self) -> AsyncQueueCalls:
        """Lists, pauses, moves and purges queues at the broker."""
        return AsyncQueueCalls(self._connection)

    @property
    def dead_letters(self) -> AsyncDeadLetterCalls:
        """Groups, lists, replays and purges dead letters at the broker."""
        return AsyncDeadLetterCalls(self._connection)

    @property
    def tasks(self) -> AsyncTaskCalls:
        """Lists the tasks that can be called."""
        return AsyncTaskCalls(self._connection)

    @property
    def workers(self) -> AsyncWorkerCalls:
        """Lists, shows and commands the workers."""
        return AsyncWorkerCalls(self._connection)

    @property
    def account(self) -> AsyncAccountCalls:
        """Signs the caller in and out, and changes the caller's password."""
        return AsyncAccountCalls(self._connection)

    @property
    def tokens(self) -> AsyncTokenCalls:
        """Adds, lists and revokes the caller's own API tokens."""
        return AsyncTokenCalls(self._connection)

    @property
    def sessions(self) -> AsyncSessionCalls:
        """Lists and ends the caller's own sign-ins."""
        return AsyncSessionCalls(self._connection)

    @property
    def users(self) -> AsyncUserCalls:
        """Adds, lists, changes and erases users, and sets their roles."""
        return AsyncUserCalls(self._connection)

    @property
    def tenants(self) -> AsyncTenantCalls:
        """Adds, lists, changes and removes tenants, and sets their members."""
        return AsyncTenantCalls(self._connection)

    @property
    def audit(self) -> AsyncAuditCalls:
        """Lists what administrators and operators have done."""
        return AsyncAuditCalls(self._connection)

    async def is_ready(self) -> bool:
        """Return whether the server can do its work: False where its store does not answer, or the server itself."""
        try:
            await self._connection.ask("getReadiness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    async def is_live(self) -> bool:
        """Return whether the server answers at all."""
        try:
            await self._connection.ask("getLiveness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    async def health(self) -> HealthReport:
        """Return which parts of the installation work, since when, and what does not work without each."""
        return await self._connection.ask("getHealth", HealthReport)

    async def server(self) -> ServerView:
        """Return what the server is: the app, the version, what it is for."""
        return await self._connection.ask("getServer", ServerView)

    async def openapi(self) -> dict[str, Any]:
        """Return the description of the API, as OpenAPI 3.1."""
        return await self._connection.ask("getOpenApi", dict[str, Any])

    async def send_event(self, source: str, data: Mapping[str, Any], *, key: str | None = None) -> SubmittedJob:
        """Start the job that events of the source start, with this event.

        Args:
            key: the event's id; the same again under it is the same job. Default: a new one.

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
        """What happens to jobs and workers, as it happens.

        Args:
            kinds: of these, with commas between: `dead,retried`.
            last_id: of the last event that one has; those after it come first.
            reconnect: go on where a stream breaks off or the server ends it, without leaving anything out that the
                server still has; else end with it.
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
