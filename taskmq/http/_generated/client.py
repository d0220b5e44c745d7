# Generated from taskmq/http/aio/client.py by `python -m tests.house.blocking_client`: change that one.
"""The asynchronous client of one server."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from taskmq.api.health import HealthReport, SystemHealth
from taskmq.api.jobs import SubmittedJob
from taskmq.api.sign_in import ServerView
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
from taskmq.http._generated.history import AlertCalls, FailureGroupCalls, FigureCalls, LogCalls
from taskmq.http._generated.jobs import JobCalls
from taskmq.http._generated.nodes import NodeCalls, ResourceCalls
from taskmq.http._generated.pools import PoolCalls, QuotaCalls
from taskmq.http._generated.queues import QueueCalls
from taskmq.http._generated.schedules import ReactionCalls, ScheduleCalls
from taskmq.http._generated.workers import WorkerCalls
from taskmq.http._generated.workflows import RunCalls, WorkflowCalls
from taskmq.http.bodies import new_key
from taskmq.http.events import EventLines, LiveEvent
from taskmq.http.retries import Retries

_RECONNECT_SECONDS = 3.0


class Client:
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
        http: httpx.Client | None = None,
        insecure: bool | None = None,
        max_age: float | None = None,
    ) -> None:
        self._connection = HttpConnection(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Later calls open new ones."""
        self._connection.close()

    def for_tenant(self, tenant: str | None) -> "Client":
        """Return a client for another tenant; both share their connections."""
        other = Client.__new__(Client)
        other._connection = self._connection.for_tenant(tenant)  # noqa: SLF001 - one of the same class
        return other

    @property
    def age(self) -> float:
        """Seconds by which the latest response of a read may be out of date; 0.0 if it is current."""
        return self._connection.freshness.age

    @property
    def jobs(self) -> JobCalls:
        """Jobs of the store: submit, list, change, cancel, and wait for results."""
        return JobCalls(self._connection)

    @property
    def logs(self) -> LogCalls:
        """Logs of jobs: read one job's log, or search all."""
        return LogCalls(self._connection)

    @property
    def figures(self) -> FigureCalls:
        """Metrics and failures of runs, per minute."""
        return FigureCalls(self._connection)

    @property
    def failure_groups(self) -> FailureGroupCalls:
        """Groups of failures by task and error: list, resolve, mute and reopen."""
        return FailureGroupCalls(self._connection)

    @property
    def alerts(self) -> AlertCalls:
        """Alerts, notices, alert rules and silences."""
        return AlertCalls(self._connection)

    @property
    def nodes(self) -> NodeCalls:
        """Host nodes: list, register, drain, resume and remove."""
        return NodeCalls(self._connection)

    @property
    def resources(self) -> ResourceCalls:
        """Resources of host nodes: allocate, release, and read usage."""
        return ResourceCalls(self._connection)

    @property
    def pools(self) -> PoolCalls:
        """Pools and scheduling policies of queues."""
        return PoolCalls(self._connection)

    @property
    def quotas(self) -> QuotaCalls:
        """Quotas of tenants and users."""
        return QuotaCalls(self._connection)

    @property
    def bulks(self) -> BulkCalls:
        """Bulk operations: start, wait for, and abort."""
        return BulkCalls(self._connection)

    @property
    def definitions(self) -> DefinitionCalls:
        """Definitions: versioned templates of jobs."""
        return DefinitionCalls(self._connection)

    @property
    def reactions(self) -> ReactionCalls:
        """Reactions: list and show."""
        return ReactionCalls(self._connection)

    @property
    def schedules(self) -> ScheduleCalls:
        """Schedules: list, change, pause, run and backfill."""
        return ScheduleCalls(self._connection)

    @property
    def workflows(self) -> WorkflowCalls:
        """Workflows: store, list and activate versions, and start runs."""
        return WorkflowCalls(self._connection)

    @property
    def runs(self) -> RunCalls:
        """Runs of workflows: list, inspect, signal, close, cancel and redrive."""
        return RunCalls(self._connection)

    @property
    def queues(self) -> QueueCalls:
        """Queues of the broker: list, pause, move and purge."""
        return QueueCalls(self._connection)

    @property
    def dead_letters(self) -> DeadLetterCalls:
        """Dead letters: group, list, replay and purge."""
        return DeadLetterCalls(self._connection)

    @property
    def tasks(self) -> TaskCalls:
        """Tasks that can be called."""
        return TaskCalls(self._connection)

    @property
    def workers(self) -> WorkerCalls:
        """Workers: list and control."""
        return WorkerCalls(self._connection)

    @property
    def account(self) -> AccountCalls:
        """The caller's account: sign in, sign out, change the password."""
        return AccountCalls(self._connection)

    @property
    def tokens(self) -> TokenCalls:
        """The caller's own API tokens: add, list and revoke."""
        return TokenCalls(self._connection)

    @property
    def sessions(self) -> SessionCalls:
        """The caller's own sessions: list and end."""
        return SessionCalls(self._connection)

    @property
    def users(self) -> UserCalls:
        """Users: add, list, change, erase, and set roles."""
        return UserCalls(self._connection)

    @property
    def tenants(self) -> TenantCalls:
        """Tenants: add, list, change, remove, and set members."""
        return TenantCalls(self._connection)

    @property
    def audit(self) -> AuditCalls:
        """The audit log of administrators and operators."""
        return AuditCalls(self._connection)

    def is_ready(self) -> bool:
        """Return whether the server is ready: False if its store or the server itself does not answer."""
        try:
            self._connection.ask("getReadiness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    def is_live(self) -> bool:
        """Return whether the server answers."""
        try:
            self._connection.ask("getLiveness", dict[str, Any])
        except ServerUnavailable:
            return False
        return True

    def health(self) -> HealthReport:
        """Return the health of the installation's parts."""
        return self._connection.ask("getHealth", HealthReport)

    def system_health(self) -> SystemHealth:
        """Return the health of the parts, schedulers, partitions and clocks, and the findings of `taskmq doctor`."""
        return self._connection.ask("getSystemHealth", SystemHealth)

    def server(self) -> ServerView:
        """Return the server's app, version and environment."""
        return self._connection.ask("getServer", ServerView)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI 3.1 document of the API."""
        return self._connection.ask("getOpenApi", dict[str, Any])

    def send_event(self, source: str, data: Mapping[str, Any], *, key: str | None = None) -> SubmittedJob:
        """Send an external event, which starts the job of its source.

        Args:
            key: the event's id; repeating it returns the same job. Default: a new one.

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
