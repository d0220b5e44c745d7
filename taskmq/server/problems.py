"""Error responses of the API: problem details (RFC 9457) with a stable code and no internals."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException, SerializationException, ValidationException

from taskmq.api.problems import MEDIA_TYPE, FieldProblem, ProblemDetails, details_of, problem_of
from taskmq.app_api.views import INSTANT_FORM
from taskmq.errors import (
    LoginThrottled,
    QuotaExceeded,
    TaskMQError,
)
from taskmq.model.units import did_you_mean
from taskmq.server.edge import fact_of

_log = logging.getLogger("taskmq.server")

NO_PATH: Final = "no such path; /api/openapi.json lists all paths"
"""The detail of a 404 for an unknown path."""
_RETRY_SECONDS: Final = 5
_NO_INSTANT: Final = re.compile("RFC3339|timezone component")
_UNKNOWN_WORD: Final = re.compile(r"Invalid enum value '(?P<word>[^']*)'")
_MISSING_FIELD: Final = re.compile(r"Missing required (?P<place>\w+) parameter '(?P<field>[^']*)'")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(?P<field>[^`]*)`")
_MOST_FIELDS: Final = 20
# Litestar's message if the client closed the connection before the body was complete.
_GONE: Final = "client disconnected prematurely"

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


class Problem(Exception):
    """Ends a request with these details.

    Args:
        errors: the invalid fields.
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
        """Build the problem for a single malformed or invalid field."""
        return cls(400, "invalid_field", f"{field}: {message}", errors=[FieldProblem(field, message, suggestion)])

    def details(self, request_id: str = "") -> ProblemDetails:
        """Return the problem details."""
        return details_of(
            self.status,
            self.code,
            self.detail,
            request_id=request_id,
            errors=self.errors,
            state=self.state,
            version=self.version,
        )


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[ProblemDetails]:
    """Convert an exception raised in a handler to a response."""
    request_id = fact_of(request.scope, "taskmq_request_id")
    headers: dict[str, str] = {}
    match error:
        case Problem():
            details, headers = error.details(request_id), error.headers
        case LoginThrottled():
            details = details_of(429, "login_throttled", str(error), request_id=request_id)
            headers["Retry-After"] = str(math.ceil(error.retry_after))
        case TaskMQError():
            details = problem_of(error, request_id)
            headers = _time_to_wait(error)
        case ValidationException():
            errors = _fields(request, error)
            said = "the request has invalid fields, listed in `errors`"
            details = details_of(
                400, "invalid_field", said if errors else error.detail, request_id=request_id, errors=errors
            )
        case HTTPException(status_code=status) if status < 500:
            code = _CODES.get(status, "bad_request")
            details = details_of(status, code, _detail_of(error, status), request_id=request_id)
            headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
        case InternalServerException(detail=detail) if detail == _GONE:
            # No client reads the response, and the server is not at fault.
            details = details_of(
                400, "client_gone", "the client disconnected during the request", request_id=request_id
            )
        case UnicodeDecodeError():
            details = details_of(400, "bad_request", "the body is not valid UTF-8", request_id=request_id)
        case RecursionError():
            details = details_of(400, "bad_request", "the body is nested too deeply", request_id=request_id)
        case _:
            details = details_of(
                500, "internal", "internal server error; see the server's log", request_id=request_id
            )
    if details.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if details.status == 503:
        headers.setdefault("Retry-After", str(_RETRY_SECONDS))
        _log.warning("%s %s (request %s): %s", request.method, request.url.path, request_id, error)
    elif details.status == 500:
        _log.error("%s %s (request %s) failed", request.method, request.url.path, request_id, exc_info=error)
    return Response(details, status_code=details.status, media_type=MEDIA_TYPE, headers=headers)


def _detail_of(error: HTTPException, status: int) -> str:
    match status:
        case 404:
            return NO_PATH
        case 413:
            return "the body is larger than this server's limit"
        case 400 if isinstance(error.__cause__, SerializationException):
            return f"the body is malformed: {error.detail}"
        case _:
            return error.detail


def _fields(request: Request[Any, Any, Any], error: ValidationException) -> list[FieldProblem]:
    """Return the invalid fields, with suggestions for unknown ones."""
    if (missing := _MISSING_FIELD.search(error.detail)) is not None:
        return [FieldProblem(missing["field"], f"is missing: it is a required {missing['place']} parameter")]
    extra = cast("list[dict[str, str]]", error.extra if isinstance(error.extra, list) else [])
    found: list[FieldProblem] = []
    for one in extra:
        field, message = one.get("key", ""), one.get("message", "")
        if _NO_INSTANT.search(message):
            message = INSTANT_FORM
        field = "body" if field == "data" else field
        if wrong := _UNKNOWN_WORD.search(message):
            words = request.route_handler.opt.get("choices", {}).get(field.rpartition(".")[2], ())
            found.append(FieldProblem(field, message, did_you_mean(wrong["word"], words) if words else ""))
            continue
        if (unknown := _UNKNOWN_FIELD.search(message)) is None:
            found.append(FieldProblem(field, message))
            continue
        name = unknown["field"]
        known: Sequence[str] = request.route_handler.opt.get("fields", ())
        path = ".".join(filter(None, ("" if field == "body" else field, name)))
        suggestion = did_you_mean(name, known) if known else ""
        found.append(FieldProblem(path, "unknown field", suggestion))
    return found[:_MOST_FIELDS]


def _time_to_wait(error: TaskMQError) -> dict[str, str]:
    if not isinstance(error, QuotaExceeded):
        return {}
    return {"Retry-After": str(_RETRY_SECONDS if error.retry_after is None else math.ceil(error.retry_after))}
