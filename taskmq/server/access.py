"""Who calls, and whether they may: one guard before every handler.

    credential -> identify -> Identity -> may they do what the handler needs, for which tenant -> Caller -> handler

Each handler declares its permission (`permission=`), or that it is for everybody (`PUBLIC`). A tenant is named by
`?tenant=`; without it it is the only one where the identity may do that. A tenant that is foreign to the identity is
one that does not exist. A role on the whole instance sees everybody's jobs, and submits those that have no tenant.
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
    Permission,
    Place,
    allows_task,
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

__all__ = [
    "PUBLIC",
    "Caller",
    "Identify",
    "authorise",
    "caller_of",
    "is_public",
    "permission_of",
    "refused",
]

PUBLIC: Final = "public"
"""Instead of a permission: every caller may, signed in or not."""
_JSON: Final = "application/json"
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS: Final = frozenset({"tenant"})

Identify = Callable[[ASGIConnection[Any, Any, Any, Any]], Awaitable[Identity]]
"""Finds out who calls; raises `NotAuthenticated` without a sign-in."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls a handler, and for whom.

    Attributes:
        tenant: whose things it is about: "" those that have no tenant, None everybody's.
        address: where the call comes from.
        request_id: of the call.
    """

    identity: Identity
    permission: Permission
    tenant: str | None
    address: str
    request_id: str

    @property
    def name(self) -> str:
        """What histories call the caller."""
        return self.identity.user

    def actor(self, note: str = "") -> Actor:
        """Who the audit says that did what the call asks for."""
        return actor_of(self.identity, address=self.address, request_id=self.request_id, note=note)

    async def note_action(
        self, app: TaskMQ, action: str, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Write what the caller is about to do at the broker or in the state into the audit, before it is done.

        An app without a store, which is mounted with its own sign-in, has no audit.

        Args:
            action: a noun and a verb, such as `queue.purge`.
            subject: the name of what it is done to.

        Raises:
            StoreUnavailable: the store could not be reached, so it is not to be done.
        """
        await note_action(app, self.actor(note), action, subject=subject, tenant=self.tenant or "", after=after)

    def may(self, permission: Permission, tenant: str | None) -> bool:
        """Whether the caller has another permission, in that tenant; None: on the whole instance."""
        return may(self.identity, permission, tenant)

    def allows(self, task: str) -> bool:
        """Whether the caller may call the task."""
        return allows_task(self.identity, self.tenant or "", task)

    @property
    def is_at_app(self) -> bool:
        """Whether the caller has the app at hand: no, a server has it."""
        return False

    @property
    def allows_all(self) -> bool:
        """Whether the caller may call whatever task there is."""
        return all("*" in have for have in task_patterns(self.identity, self.tenant or ""))


async def authorise(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of every handler.

    Raises:
        Problem: the caller is not signed in, may not, or the query has parameters that the handler does not know; or
            there were too many calls.
    """
    if "permission" not in handler.opt:
        # The framework added it, and the API does not have it.
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
        raise Problem(403, "read_only", "this server changes nothing: it was started with --read-only")
    _check_query(connection, handler)
    cast("dict[str, Caller]", connection.scope)["taskmq_caller"] = Caller(
        identity=identity,
        permission=needs,
        tenant=tenant,
        address="" if connection.client is None else connection.client.host,
        request_id=fact_of(connection.scope, "taskmq_request_id"),
    )


def permission_of(handler: BaseRouteHandler) -> Permission | None:
    """What a handler needs; None where it is for everybody.

    Raises:
        ValueError: it does not say.
    """
    declared = handler.opt.get("permission")
    if declared == PUBLIC:
        return None
    if declared is None:
        raise ValueError(f"handler {handler.handler_name} declares no permission")
    return Permission(declared)


def is_public(handler: BaseRouteHandler) -> bool:
    """Whether no sign-in is asked for before the handler; nothing is served where it declares no permission."""
    return handler.opt.get("permission") in {None, PUBLIC}


async def caller_of(scope: Scope) -> Caller:
    """The caller whom the guard has let in, for handlers."""
    return cast("dict[str, Caller]", scope)["taskmq_caller"]


def refused(needs: Permission) -> Problem:
    """That the caller lacks a permission."""
    return Problem(403, "not_allowed", f"you may not: it takes the permission {needs.value}")


def _tenant_of(connection: ASGIConnection[Any, Any, Any, Any], identity: Identity, needs: Permission) -> str | None:
    """Whose things the call is about."""
    asked = connection.query_params.get("tenant")
    if RULES[needs].place is not Place.TENANT:
        if not may(identity, needs):
            raise refused(needs)
        return asked
    scope = scope_for(identity, needs)
    if asked is not None:
        if scope.has(asked):
            return str(asked)
        # One who has another role there may know that it exists.
        raise (
            refused(needs)
            if roles_in(identity, asked)
            else Problem(404, "tenant_not_found", f"there is no tenant {str(asked)[:80]!r}")
        )
    if scope.tenants is None:
        return None
    if not scope.tenants:
        raise refused(needs)
    if (only := scope.single()) is not None:
        return only
    names = ", ".join(sorted(scope.tenants))
    raise Problem(400, "tenant_missing", f"which tenant? Say ?tenant= with one of {names}")


def _check_type(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse a body that is not JSON by its own account: forms of foreign pages can send all but that."""
    headers = connection.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON
    if is_json or (handler.opt.get("takes_any_type") and (is_signed(connection) or "authorization" in headers)):
        return
    raise Problem(
        415,
        "unsupported_media_type",
        f"the body has to be JSON, and say so: send Content-Type: {_JSON} (curl: --json)",
    )


def _check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    known = _ALWAYS | handler.opt.get("query", frozenset())
    for name, value in connection.query_params.multi_items():
        if name not in known and not handler.opt.get("takes_any_parameter"):
            hint = did_you_mean(name, sorted(known))
            error = FieldProblem(name[:80], "there is no such parameter", hint)
            raise Problem(400, "unknown_parameter", f"there is no parameter {name[:80]!r}: {hint}", errors=[error])
        if "\0" in value or (not value.isascii() and "\ufffd" in value):
            raise Problem.about(name, "it is no text in UTF-8, or has a NUL in it")
