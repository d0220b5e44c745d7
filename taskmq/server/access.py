"""Authorisation: one guard before every handler.

    credential -> identify -> Identity -> has the handler's permission, for which tenant -> Caller -> handler

Each handler declares its permission (`taskmq.server.handlers`), or is public (`PUBLIC`). `?tenant=` names the tenant;
without it the guard takes the only tenant where the identity has the permission. A tenant without any role of the
identity is reported as not found. An instance role sees the jobs of all tenants, and submits jobs without a tenant.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Scope

from taskmq.access import actor_of
from taskmq.api.problems import FieldProblem
from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.model.identity import (
    RULES,
    Identity,
    Level,
    Permission,
    allows_task,
    answers_as,
    may,
    roles_in,
    scope_for,
    task_patterns,
)
from taskmq.model.units import did_you_mean
from taskmq.operations.audit.actions import note_action
from taskmq.server.edge import fact_of
from taskmq.server.problems import NO_PATH, Problem
from taskmq.server.rates import RequestLimits
from taskmq.server.sign_in import credential_of, is_signed

PUBLIC: Final = "public"
"""Marks a handler as public: it needs no sign-in."""
_JSON: Final = "application/json"
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS: Final = frozenset({"tenant"})

Identify = Callable[[ASGIConnection[Any, Any, Any, Any]], Awaitable[Identity]]
"""Identifies the caller; raises `NotAuthenticated` without a valid credential."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a handler and the tenant the call is about.

    Attributes:
        tenant: the selected tenant; "" for objects without a tenant, None for all.
        address: the client's IP address.
    """

    identity: Identity
    permission: Permission
    tenant: str | None
    address: str
    request_id: str

    @property
    def name(self) -> str:
        """The user's name, as recorded in histories."""
        return self.identity.user

    def actor(self, note: str = "") -> Actor:
        """Return the actor to record in the audit log."""
        return actor_of(self.identity, address=self.address, request_id=self.request_id, note=note)

    async def note_action(
        self, app: TaskMQ, action: str, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Write an audit entry before an action on the broker or the state.

        An app without a store, mounted with its host's sign-in, has no audit log.

        Args:
            action: a noun and a verb, such as `queue.purge`.
            subject: the name of the affected object.

        Raises:
            StoreUnavailable: the store is unreachable; the action must not be performed.
        """
        await note_action(app, self.actor(note), action, subject=subject, tenant=self.tenant or "", after=after)

    def may(self, permission: Permission, tenant: str | None) -> bool:
        """Whether the caller has another permission on the tenant; None for the whole instance."""
        return may(self.identity, permission, tenant)

    def allows(self, task: str) -> bool:
        """Whether the caller may call the task."""
        return allows_task(self.identity, self.tenant or "", task)

    @property
    def roles(self) -> tuple[str, ...]:
        """The caller's roles in the tenant, with those that they include, and groups."""
        return answers_as(self.identity, self.tenant or "")

    @property
    def is_at_app(self) -> bool:
        """Whether the caller runs in the app's own process: never, behind a server."""
        return False

    @property
    def allows_all(self) -> bool:
        """Whether the caller may call every task."""
        return all("*" in have for have in task_patterns(self.identity, self.tenant or ""))


async def authorise(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Authorise a request; the guard of every handler.

    Raises:
        Problem: the caller is not signed in or lacks the permission, the query has unknown parameters, or there were
            too many requests.
    """
    if "permission" not in handler.opt:
        # Litestar adds handlers that are not part of the API.
        raise Problem(404, "not_found", NO_PATH)
    _check_type(connection, handler)
    needs = permission_of(handler)
    state = connection.app.state
    limits: RequestLimits = state["limits"]
    if needs is None:
        if handler.opt.get("is_limited"):
            limits.take_call(connection)
        _check_query(connection, handler)
        return
    identity = await limits.identify(
        connection, lambda: state["identify"](connection), credential=credential_of(connection)
    )
    tenant = _tenant_of(connection, identity, needs)
    method = fact_of(connection.scope, "method")
    if state["settings"].read_only and method not in _READS and not handler.opt.get("changes_nothing"):
        raise Problem(403, "read_only", "this server is read-only: it was started with --read-only")
    _check_query(connection, handler)
    cast("dict[str, Caller]", connection.scope)["taskmq_caller"] = Caller(
        identity=identity,
        permission=needs,
        tenant=tenant,
        address="" if connection.client is None else connection.client.host,
        request_id=fact_of(connection.scope, "taskmq_request_id"),
    )


def permission_of(handler: BaseRouteHandler) -> Permission | None:
    """Return the permission a handler needs; None for a public handler.

    Raises:
        ValueError: the handler declares none.
    """
    declared = handler.opt.get("permission")
    if declared == PUBLIC:
        return None
    if declared is None:
        raise ValueError(f"handler {handler.handler_name} declares no permission")
    return Permission(declared)


def is_public(handler: BaseRouteHandler) -> bool:
    """Whether the handler needs no sign-in. A handler without a declared permission is never served."""
    return handler.opt.get("permission") in {None, PUBLIC}


async def caller_of(scope: Scope) -> Caller:
    """Return the authorised caller; a dependency of handlers."""
    return cast("dict[str, Caller]", scope)["taskmq_caller"]


def permission_problem(needs: Permission) -> Problem:
    """Build the problem for a missing permission."""
    return Problem(403, "not_allowed", f"permission denied: this needs {needs.value}")


def _tenant_of(connection: ASGIConnection[Any, Any, Any, Any], identity: Identity, needs: Permission) -> str | None:
    """Return the tenant the call is about."""
    asked = connection.query_params.get("tenant")
    if RULES[needs].level is not Level.TENANT:
        if not may(identity, needs):
            raise permission_problem(needs)
        return asked
    scope = scope_for(identity, needs)
    if asked is not None:
        if scope.has(asked):
            return str(asked)
        # A caller with another role on the tenant may know that it exists.
        raise (
            permission_problem(needs)
            if roles_in(identity, asked)
            else Problem(404, "tenant_not_found", f"tenant {str(asked)[:80]!r} not found")
        )
    if scope.tenants is None:
        return None
    if not scope.tenants:
        raise permission_problem(needs)
    if (only := scope.single()) is not None:
        return only
    names = ", ".join(sorted(scope.tenants))
    raise Problem(400, "tenant_missing", f"select a tenant with ?tenant=, one of {names}")


def _check_type(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse a body without the JSON content type. Forms on foreign pages cannot send that type."""
    headers = connection.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON
    if is_json or (handler.opt.get("takes_any_type") and (is_signed(connection) or "authorization" in headers)):
        return
    raise Problem(
        415,
        "unsupported_media_type",
        f"the body must be JSON: send Content-Type: {_JSON} (curl: --json)",
    )


def _check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    known = _ALWAYS | handler.opt.get("query", frozenset())
    for name, value in connection.query_params.multi_items():
        if name not in known and not handler.opt.get("takes_any_parameter"):
            hint = did_you_mean(name, sorted(known))
            error = FieldProblem(name[:80], "unknown parameter", hint)
            raise Problem(400, "unknown_parameter", f"unknown parameter {name[:80]!r}: {hint}", errors=[error])
        if "\0" in value or (not value.isascii() and "\ufffd" in value):
            raise Problem.about(name, "must be UTF-8 without NUL characters")
