"""Errors as the API tells them: problem details (RFC 9457) with a stable code, and nothing of the inside."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from taskmq.errors import (
    AccessDenied,
    BrokerBlocked,
    BrokerUnavailable,
    DefinitionConflict,
    DefinitionNotFound,
    DuplicateJob,
    EncodeError,
    FlowClosed,
    FlowFailed,
    FlowNotFound,
    IdentityConflict,
    IdentityNotFound,
    InvalidArguments,
    InvalidFilter,
    InvalidOption,
    JobCancelled,
    JobConflict,
    JobNotFound,
    LoginThrottled,
    NotAuthenticated,
    NotPermitted,
    PartlyReplayed,
    PublishRejected,
    PublishUnknown,
    QueueMissing,
    QuotaExceeded,
    ResultDamaged,
    ResultExpired,
    ResultTimeout,
    StateUnavailable,
    StoreMismatch,
    StoreUnavailable,
    TaskFailed,
    TaskMQError,
    TooLarge,
    TopologyMismatch,
    UnknownTask,
    Unroutable,
    UnsupportedFeature,
)
from taskmq.model.units import did_you_mean
from taskmq.server.edge import fact_of

__all__ = ["FieldProblem", "Problem", "ProblemDetails", "problem_of", "problem_response"]

_log = logging.getLogger("taskmq.server")

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_SECONDS: Final = 5
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(?P<field>[^`]*)`")
_MOST_FIELDS: Final = 20

# Status, code, and for those that are ours and not the caller's what is told instead of the message.
_KINDS: Final[tuple[tuple[type[TaskMQError], int, str, str], ...]] = (
    (DefinitionNotFound, 404, "definition_not_found", ""),
    (DefinitionConflict, 409, "definition_conflict", ""),
    (JobNotFound, 404, "job_not_found", ""),
    (QueueMissing, 404, "queue_not_found", ""),
    (Unroutable, 404, "queue_not_found", ""),
    (FlowNotFound, 404, "workflow_not_found", ""),
    (IdentityNotFound, 404, "identity_not_found", ""),
    (NotAuthenticated, 401, "not_signed_in", ""),
    (NotPermitted, 403, "not_allowed", ""),
    (UnknownTask, 422, "unknown_task", ""),
    (InvalidArguments, 422, "invalid_arguments", ""),
    (EncodeError, 422, "invalid_arguments", ""),
    (InvalidFilter, 400, "invalid_filter", ""),
    (InvalidOption, 400, "invalid_option", ""),
    (TooLarge, 413, "too_large", ""),
    (IdentityConflict, 409, "identity_conflict", ""),
    (JobConflict, 409, "job_conflict", ""),
    (DuplicateJob, 409, "duplicate_job", ""),
    (QuotaExceeded, 429, "quota_exceeded", ""),
    (FlowClosed, 409, "workflow_closed", ""),
    (FlowFailed, 409, "workflow_failed", ""),
    (TaskFailed, 409, "job_failed", ""),
    (JobCancelled, 409, "job_cancelled", ""),
    (ResultTimeout, 409, "job_not_ended", ""),
    (ResultExpired, 410, "result_expired", ""),
    (ResultDamaged, 410, "result_damaged", "the result is not what was stored"),
    (UnsupportedFeature, 501, "unsupported", ""),
    (AccessDenied, 503, "broker_denied", "the broker refuses this server's user"),
    (BrokerUnavailable, 503, "broker_unavailable", "the broker could not be reached; nothing was sent"),
    (BrokerBlocked, 503, "broker_blocked", "the broker takes no messages for now; nothing was sent"),
    (PublishRejected, 503, "publish_rejected", "the broker refused the message; nothing was sent"),
    (PublishUnknown, 503, "publish_unknown", "it is not known whether the broker has taken the message"),
    (StateUnavailable, 503, "state_unavailable", "the state could not be reached"),
    (StoreUnavailable, 503, "store_unavailable", "the job store could not be reached"),
    (StoreMismatch, 503, "store_mismatch", "the job store's tables are of another version than this server's"),
    (TopologyMismatch, 409, "topology_mismatch", ""),
)
_TITLES: Final = {
    400: "The request cannot be read",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "The method is not allowed here",
    406: "Not acceptable",
    409: "In conflict with what is there",
    410: "Gone",
    412: "It has changed meanwhile",
    413: "Too large",
    415: "Unsupported media type",
    422: "It cannot be done so",
    428: "A precondition is required",
    429: "Too many requests",
    500: "An error of the server",
    501: "Not available here",
    503: "Not available for now",
}
_CODES: Final = {
    400: "bad_request",
    401: "not_signed_in",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "too_many_requests",
}


class FieldProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field of a request.

    Attributes:
        field: its path, such as `priority` or `3.job_type`.
        suggestion: what may be meant, or can stand there.
    """

    field: str
    message: str
    suggestion: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as `application/problem+json`.

    Attributes:
        code: stable; programs go by it.
        detail: for people: what happened, to which name, and what to do.
        request_id: to be named where somebody is asked for help.
        errors: about single fields.
        state, version: of the job, where it is in conflict.
        column: where a filter cannot be read, from 1.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    request_id: str = ""
    errors: list[FieldProblem] = []
    state: str = ""
    version: int = 0
    column: int = 0


class Problem(Exception):
    """Ends a request with these details.

    Args:
        fields: names that may stand where an unknown one stands; for a suggestion.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        state: str = "",
        version: int = 0,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.state = state
        self.version = version

    @classmethod
    def about(cls, field: str, message: str, suggestion: str = "") -> "Problem":
        """One about a single field that cannot be read or has a value that it cannot have."""
        return cls(400, "invalid_field", f"{field}: {message}", errors=[FieldProblem(field, message, suggestion)])

    def details(self, request_id: str = "") -> ProblemDetails:
        """As the API tells it."""
        return _details(
            self.status,
            self.code,
            self.detail,
            request_id=request_id,
            errors=self.errors,
            state=self.state,
            version=self.version,
        )


def problem_of(error: TaskMQError, request_id: str = "") -> ProblemDetails:
    """An error of taskmq as the API tells it; one that is no caller's is told without its message."""
    if isinstance(error, PartlyReplayed):
        found = problem_of(error.failure, request_id)
        return msgspec.structs.replace(
            found, detail=f"{error.replayed} were replayed, {error.failed} were not: {found.detail}"
        )
    for kind, status, code, said in _KINDS:
        if isinstance(error, kind):
            facts: dict[str, Any] = {}
            if isinstance(error, JobConflict):
                facts = {"state": error.state, "version": error.version}
            if isinstance(error, DefinitionConflict):
                facts = {"version": error.version}
            if isinstance(error, InvalidFilter):
                facts = {"column": error.column}
            if isinstance(error, StateUnavailable | StoreUnavailable):
                said = f"{said}; {'nothing was changed' if error.is_certain else 'it may have been changed'}"  # noqa: PLW2901 - only here it is more than a constant
            return _details(status, code, said or str(error), request_id=request_id, **facts)
    return _details(500, "internal", "an error of the server; its log has more", request_id=request_id)


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[ProblemDetails]:
    """The answer for whatever was raised while a request was handled."""
    request_id = fact_of(request.scope, "taskmq_request_id")
    headers: dict[str, str] = {}
    match error:
        case Problem():
            details, headers = error.details(request_id), error.headers
        case LoginThrottled():
            details = _details(429, "login_throttled", str(error), request_id=request_id)
            headers["Retry-After"] = str(math.ceil(error.retry_after))
        case TaskMQError():
            details = problem_of(error, request_id)
            if isinstance(error, QuotaExceeded):
                wait = _RETRY_SECONDS if error.retry_after is None else math.ceil(error.retry_after)
                headers["Retry-After"] = str(wait)
        case ValidationException():
            details = _details(
                400,
                "invalid_field",
                "the request has fields that cannot be read; `errors` names them",
                request_id=request_id,
                errors=_fields(request, error),
            )
        case HTTPException(status_code=status) if status < 500:
            code = _CODES.get(status, "bad_request")
            details = _details(status, code, _detail_of(error, status), request_id=request_id)
            headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
        case UnicodeDecodeError():
            details = _details(400, "bad_request", "the body is no text in UTF-8", request_id=request_id)
        case RecursionError():
            details = _details(400, "bad_request", "the body is nested too deeply", request_id=request_id)
        case _:
            details = _details(500, "internal", "an error of the server; its log has more", request_id=request_id)
    if details.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if details.status == 503:
        headers["Retry-After"] = str(_RETRY_SECONDS)
        _log.warning("%s %s (request %s): %s", request.method, request.url.path, request_id, error)
    elif details.status == 500:
        _log.error("%s %s (request %s) failed", request.method, request.url.path, request_id, exc_info=error)
    return Response(details, status_code=details.status, media_type=MEDIA_TYPE, headers=headers)


def _details(status: int, code: str, detail: str, *, request_id: str, **facts: Any) -> ProblemDetails:
    return ProblemDetails(
        type=f"urn:taskmq:problem:{code}",
        title=_TITLES.get(status, "An error"),
        status=status,
        code=code,
        detail=detail,
        request_id=request_id,
        **facts,
    )


def _detail_of(error: HTTPException, status: int) -> str:
    match status:
        case 404:
            return "there is nothing at this path: /api/openapi.json lists what there is"
        case 413:
            return "the body is larger than this server takes"
        case _:
            return error.detail


def _fields(request: Request[Any, Any, Any], error: ValidationException) -> list[FieldProblem]:
    """What is wrong with which fields, with a suggestion for those that do not exist."""
    extra = cast("list[dict[str, str]]", error.extra if isinstance(error.extra, list) else [])
    found: list[FieldProblem] = []
    for one in extra:
        field, message = one.get("key", ""), one.get("message", "")
        field = "body" if field == "data" else field
        if (unknown := _UNKNOWN_FIELD.search(message)) is None:
            found.append(FieldProblem(field, message))
            continue
        name = unknown["field"]
        known: Sequence[str] = request.route_handler.opt.get("fields", ())
        place = ".".join(filter(None, ("" if field == "body" else field, name)))
        suggestion = did_you_mean(name, known) if known else ""
        found.append(FieldProblem(place, "there is no such field", suggestion))
    return found[:_MOST_FIELDS]
