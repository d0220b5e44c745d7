"""Requests of operations, and their responses as values or errors."""

import contextlib
import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from taskmq.api._generated.operations import OPERATIONS
from taskmq.api.problems import PROBLEMS, UNCERTAIN, ProblemDetails
from taskmq.errors import (
    DefinitionConflict,
    EncodeError,
    IdentityConflict,
    InvalidFilter,
    InvalidOption,
    InvalidSetting,
    JobConflict,
    LoginThrottled,
    NotAuthenticated,
    NotPermitted,
    RequestRefused,
    ServerUnavailable,
    TaskMQError,
    UnknownTask,
)
from taskmq.model.values.wire_form import encode_json
from taskmq.version import VERSION

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
CursorT_co = TypeVar("CursorT_co", covariant=True)

_BUSY: Final = frozenset({502, 503, 504})
_YES: Final = frozenset({"1", "true", "yes"})
# Codes of the server that do not correspond to one error class of taskmq.
_BY_CODE: Final[Mapping[str, type[TaskMQError]]] = {
    "task_not_found": UnknownTask,
    "login_throttled": LoginThrottled,
    **{code: kind for kind, _, code, _ in reversed(PROBLEMS)},
}
# The server has one code for version conflicts; here each kind of object has its own error class.
_MISMATCHES: Final[Mapping[str, type[TaskMQError]]] = {
    "changeUser": IdentityConflict,
    "putDefinition": DefinitionConflict,
    "deleteDefinition": DefinitionConflict,
    "putSchedule": InvalidOption,
}
_BY_STATUS: Final[Mapping[int, type[TaskMQError]]] = {
    400: InvalidOption,
    401: NotAuthenticated,
    403: NotPermitted,
}
# Default attributes of errors, for those missing in the response.
_FACTS: Final[Mapping[str, Any]] = {
    "attempts": 0,
    "failures": {},
    "run_id": "",
    "hint": "",
    "job_id": "",
    "limit": 0,
    "message": "",
    "most": 0,
    "permission": "",
    "queue": "",
    "size": 0,
    "task": "",
    "tenant": "",
    "traceback": "",
    "type_name": "",
    "user": None,
}


class ListedPage(Protocol[T_co, CursorT_co]):
    """A page of a list, with the cursor of the next one."""

    @property
    def items(self) -> Sequence[T_co]:
        """The items on the page."""
        ...

    @property
    def next(self) -> CursorT_co | None:
        """The cursor of the next page; None on the last page."""
        ...


class Prepared(NamedTuple):
    """A request that is ready to send.

    Attributes:
        path: the path below the server's address, quoted, with its query.
        repeats: whether it may be repeated if its outcome is unknown.
    """

    operation: str
    method: str
    path: str
    headers: dict[str, str]
    content: bytes | None
    repeats: bool

    def __repr__(self) -> str:
        # The token and the job's arguments must not appear in logs.
        return f"<{self.method} {self.path.partition('?')[0]}>"


def address_of(url: str | None) -> str:
    """Return the server's address, without a trailing slash.

    Args:
        url: the URL. Default: `$TASKMQ_SERVER`.

    Raises:
        InvalidSetting: the URL is missing or invalid.
    """
    text = url or os.environ.get("TASKMQ_SERVER", "")
    if not text:
        raise InvalidSetting(
            "the server's URL is missing: give one, such as http://localhost:8787, or set $TASKMQ_SERVER"
        )
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidSetting(
            f"server {text!r} is not a URL such as https://jobs.example.com or http://localhost:8787"
        )
    if parts.username or parts.password:
        raise InvalidSetting("the server's URL must not contain a user name or password: use a token, or log in")
    return text.rstrip("/")


def tls_verification(address: str) -> ssl.SSLContext | bool:
    """Return httpx's `verify` for an address: the system's certificate authorities, or nothing for `http`.

    Loading the authorities takes longer than a request.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if urlsplit(address).scheme == "http" else True


def check_secrecy(address: str, *, what: str, insecure: bool | None) -> None:
    """Check that a secret cannot be read on the way to this address.

    Args:
        what: the secret, for the error message.
        insecure: allow it to be readable. Default: the value of `$TASKMQ_INSECURE`.

    Raises:
        InvalidSetting: the address is on another machine and has no TLS.
    """
    parts = urlsplit(address)
    if insecure is None:
        insecure = os.environ.get("TASKMQ_INSECURE", "").lower() in _YES
    if not insecure and parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise InvalidSetting(
            f"{address} has no TLS, so others could read {what}: use https://, or allow it with "
            "insecure=True for a client, --insecure for a command, TASKMQ_INSECURE=1 for both"
        )


def headers_of(token: str | None, *, address: str, insecure: bool | None) -> dict[str, str]:
    """Build the headers of every request.

    Args:
        token: the token. Default: `$TASKMQ_TOKEN`; "" for none.
        address: the address of the server.
        insecure: see `check_secrecy`.

    Raises:
        InvalidSetting: the token is malformed, or could be read on the way.
    """
    headers = {"accept": "application/json, application/problem+json", "user-agent": f"taskmq/{VERSION}"}
    secret = os.environ.get("TASKMQ_TOKEN", "") if token is None else token
    if secret:
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidSetting("the token contains invalid characters: check that it was copied completely")
        check_secrecy(address, what="the token", insecure=insecure)
        headers["authorization"] = f"Bearer {secret}"
    return headers


def prepare(
    operation: str,
    *,
    path: Mapping[str, str],
    query: Mapping[str, Any],
    body: Any,
    tenant: str | None,
    version: int | None,
    key: str | None,
    headers: Mapping[str, str],
) -> Prepared:
    """Build the request of an operation.

    Raises:
        InvalidOption: a name is empty, or a value cannot be encoded as JSON.
    """
    known = OPERATIONS[operation]
    where = known.path
    for name, value in path.items():
        if not value:
            raise InvalidOption(f"{name} is empty")
        where = where.replace(f"{{{name}}}", _segment(value))
    said = {**query, "tenant": tenant}
    more = dict(headers)
    content = None
    if body is not None:
        more["content-type"] = "application/json"
        try:
            content = encode_json(body)
        except EncodeError as error:
            raise InvalidOption(f"an argument cannot be encoded as JSON: {error}") from error
    if version == 0:
        more["if-none-match"] = "*"
    elif version is not None:
        more["if-match"] = f'"{version}"'
    if key is not None:
        more["idempotency-key"] = key
    pairs = [
        (name, _text(one))
        for name, value in said.items()
        for one in (cast("list[object]", value) if isinstance(value, list) else [value])
        if one is not None
    ]
    if pairs:
        where = f"{where}?{urlencode(pairs)}"
    return Prepared(operation, known.method, where, more, content, known.repeats or key is not None)


def decode(content: bytes, kind: type[T], *, server: str) -> T:
    """Decode a successful response.

    Raises:
        ServerUnavailable: the response is not from a taskmq server of a compatible version.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ServerUnavailable(
            f"{server} returned an unexpected response; is it a taskmq server of version {VERSION}? {error}",
            is_certain=False,
        ) from error


def error_of(status: int, content: bytes, *, operation: str, server: str) -> TaskMQError:
    """Return the error that a response means, of the same class as in Python if there is one."""
    try:
        problem = msgspec.json.decode(content, type=ProblemDetails)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A response of a proxy, or of something that is not a taskmq server.
        message = f"{server} returned status {status} without problem details; is it a taskmq server?"
        if status in _BUSY:
            return ServerUnavailable(message, is_certain=False)
        return RequestRefused(message, status=status)
    error = _error(problem, status, operation)
    if problem.request_id:
        error.add_note(f"request {problem.request_id} at {server}")
    return error


def error_named(code: str, detail: str) -> TaskMQError:
    """Return the error with this API code and message."""
    return _error(ProblemDetails(type="", title="", status=0, code=code, detail=detail), 0, "")


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait; None if it names none, or a date."""
    with contextlib.suppress(ValueError):
        return max(float(headers.get("retry-after", "")), 0.0)
    return None


def _error(problem: ProblemDetails, status: int, operation: str) -> TaskMQError:
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(status)
    if problem.code == "version_mismatch":
        kind = _MISMATCHES.get(operation, JobConflict)
    detail = problem.detail or problem.title
    if problem.errors and problem.code == "invalid_field":
        detail = "; ".join(
            f"{one.field}: {one.message}{f' ({one.suggestion})' if one.suggestion else ''}" for one in problem.errors
        )
    if kind is None:
        return RequestRefused(detail, status=status, code=problem.code)
    error = kind.__new__(kind, detail)
    is_certain = UNCERTAIN not in detail
    known = {"state": problem.state, "version": problem.version, "is_certain": is_certain, "retry_after": 0.0}
    error.__dict__.update({**_FACTS, **known})
    if kind is InvalidFilter:
        error.__dict__["column"] = problem.column
    return error


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _segment(name: str) -> str:
    """Encode a name as one segment of a path: clients resolve `.` and `..` before they send them."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
