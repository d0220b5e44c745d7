# Generated from taskmq/http/aio/client.py by `python -m tests.house.blocking_client`: change that one.
"""The client of one server."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from taskmq.api.jobs import SubmittedJob
from taskmq.api.sign_in import ServerView
from taskmq.api.workers import HealthReport
from taskmq.errors import ServerUnavailable
from taskmq.http._generated.accounts import (
    AccountCalls,
    AuditCalls,
    SessionCalls,
    TenantCalls,
    TokenCalls,
    UserCalls,
)
from taskmq.http._generated.bulks import BulkCalls
from taskmq.http._generated.connection import HttpConnection
from taskmq.http._generated.dead_letters import DeadLetterCalls
from taskmq.http._generated.definitions import DefinitionCalls, TaskCalls
from taskmq.http._generated.history import AlertCalls, FigureCalls, LogCalls
from taskmq.http._generated.jobs import JobCalls
from taskmq.http._generated.nodes import NodeCalls, ResourceCalls
from taskmq.http._generated.pools import PoolCalls, QuotaCalls
from taskmq.http._generated.queues import QueueCalls
from taskmq.http._generated.schedules import ScheduleCalls
from taskmq.http._generated.workers import WorkerCalls
from taskmq.http._generated.workflows import WorkflowCalls
from taskmq.http.bodies import new_key
from taskmq.http.events import EventLines, LiveEvent
from taskmq.http.retries import Retries

__all__ = ["Client"]

_RECONNECT_SECONDS = 3.0


class Client:
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
        http: httpx.Client | None = None,
        insecure: bool | None = None,
    ) -> None:
        self._connection = HttpConnection(
            url, token=token, tenant=tenant, timeout=timeout, retries=retries, http=http, insecure=insecure
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls after that open new ones."""
        self._connection.close()

    def for_tenant(self, tenant: str | None) -> "Client":
        """Return a client for another tenant; both share their connections."""
        other = Client.__new__(Client)
        other._connection = self._connection.for_tenant(tenant)  # noqa: SLF001 - one of the same class
        return other

    @property
    def jobs(self) -> JobCalls:
        """Submits, lists, changes and cancels jobs of the store, and waits for their results."""
        return JobCalls(self._connection)

    @property
    def logs(self) -> LogCalls:
        """Reads what the runs of jobs have logged, of one job or by a search."""
        return LogCalls(self._connection)

    @property
    def figures(self) -> FigureCalls:
        """Reads counts, times and failures of runs, by the minute."""
        return FigureCalls(self._connection)

    @property
    def alerts(self) -> AlertCalls:
        """Lists alerts and notices, and keeps their rules and silences."""
        return AlertCalls(self._connection)

    @property
    def nodes(self) -> NodeCalls:
        """Lists host nodes, registers, drains, resumes and removes them."""
        return NodeCalls(self._connection)

    @property
    def resources(self) -> ResourceCalls:
        """Allocates resources of host nodes and releases them, and reads their use."""
        return ResourceCalls(self._connection)

    @property
    def pools(self) -> PoolCalls:
        """Keeps the pools and policies by which it is decided whose turn it is."""
        return PoolCalls(self._connection)

    @property
    def quotas(self) -> QuotaCalls:
        """Keeps how much tenants and their users may submit and run."""
        return QuotaCalls(self._connection)

    @property
    def bulks(self) -> BulkCalls:
        """Begins operations on all jobs of a filter, and waits for or ends them."""
        return BulkCalls(self._connection)

    @property
    def definitions(self) -> DefinitionCalls:
        """Keeps the templates that jobs are made from, version by version."""
        return DefinitionCalls(self._connection)

    @property
    def schedules(self) -> ScheduleCalls:
        """Lists, keeps, pauses, runs and backfills the schedules of the app."""
        return ScheduleCalls(self._connection)

    @property
    def workflows(self) -> WorkflowCalls:
        """Lists, cancels and redrives workflows."""
        return WorkflowCalls(self._connection)

    @property
    def queues(self) -> QueueCalls:
        """Lists, pauses, moves and purges queues at the broker."""
        return QueueCalls(self._connection)

    @property
    def dead_letters(self) -> DeadLetterCalls:
        """Groups, lists, replays and purges dead letters at the broker."""
        return DeadLetterCalls(self._connection)

    @property
    def tasks(self) -> TaskCalls:
        """Lists the tasks that can be called."""
        return TaskCalls(self._connection)

    @property
    def workers(self) -> WorkerCalls:
        """Lists, shows and commands the workers."""
        return WorkerCalls(self._connection)

    @property
    def account(self) -> AccountCalls:
        """Signs the caller in and out, and changes the caller's password."""
        return AccountCalls(self._connection)

    @property
    def tokens(self) -> TokenCalls:
        """Adds, lists and revokes the caller's own API tokens."""
        return TokenCalls(self._connection)

    @property
    def sessions(self) -> SessionCalls:
        """Lists and ends the caller's own sign-ins."""
        return SessionCalls(self._connection)

    @property
    def users(self) -> UserCalls:
        """Adds, lists, changes and erases users, and sets their roles."""
        return UserCalls(self._connection)

    @property
    def tenants(self) -> TenantCalls:
        """Adds, lists, changes and removes tenants, and sets their members."""
        return TenantCalls(self._connection)

    @property
    def audit(self) -> AuditCalls:
        """Lists what administrators and operators have done."""
        return AuditCalls(self._connection)

    def is_ready(self) -> bool:
        """Return whether the server can do its work: False where its store does not answer, or the server itself."""
        try:
            self._connection.ask("getReadiness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    def is_live(self) -> bool:
        """Return whether the server answers at all."""
        try:
            self._connection.ask("getLiveness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    def health(self) -> HealthReport:
        """Return which parts of the installation work, since when, and what does not work without each."""
        return self._connection.ask("getHealth", HealthReport)

    def server(self) -> ServerView:
        """Return what the server is: the app, the version, what it is for."""
        return self._connection.ask("getServer", ServerView)

    def openapi(self) -> dict[str, Any]:
        """Return the description of the API, as OpenAPI 3.1."""
        return self._connection.ask("getOpenApi", dict[str, Any])

    def send_event(self, source: str, data: Mapping[str, Any], *, key: str | None = None) -> SubmittedJob:
        """Start the job that events of the source start, with this event.

        Args:
            key: the event's id; the same again under it is the same job. Default: a new one.

        Raises:
            JobConflict: another event has the id.
        """
        query = {"source": source}
        return self._connection.ask("sendEvent", SubmittedJob, query=query, body=dict(data), key=key or new_key())

    def events(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        job_id: str | None = None,
        kinds: str | None = None,
        last_id: str | None = None,
        reconnect: bool = True,
    ) -> Iterator[LiveEvent]:
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
                for line in self._connection.lines("followEvents", query=query, headers=headers):
                    event = read.add(line)
                    if event is not None:
                        last_id = event.id or last_id
                        yield event
            except ServerUnavailable:
                if not reconnect:
                    raise
            if not reconnect:
                return
            time.sleep(_RECONNECT_SECONDS)
