"""Inputs of requests: dependencies, versions, idempotency keys, pages, and parameters of several handlers."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from litestar import Request
from litestar.datastructures import Headers
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from taskmq.api.values import MOST_PER_PAGE, Instant, LogLevel
from taskmq.app import TaskMQ
from taskmq.app_api.app_api import AppApi
from taskmq.errors import DefinitionConflict, IdentityConflict, JobConflict
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import Caller
from taskmq.server.edge import fact_of, link_path
from taskmq.server.problems import Problem

# Dependencies that any handler may declare.
ServedApp = NamedDependency[TaskMQ]
CallerGiven = NamedDependency[Caller]
ApiGiven = NamedDependency[AppApi]
OwnJobs = NamedDependency[TenantJobs]

Limit = Annotated[int, QueryParameter(ge=1, le=MOST_PER_PAGE, description="Maximum number of items in the page.")]
Cursor = Annotated[str | None, QueryParameter(description="`next` of the previous page. Omit it for the first page.")]

FromLevel = Annotated[LogLevel, QueryParameter(description="Minimum level.")]
Text = Annotated[
    str, QueryParameter(description="Text in the line; ASCII letters match in either case.", max_length=500)
]
OfStep = Annotated[str, QueryParameter(description="Only this step of the run, and its children.", max_length=255)]
Since = Annotated[Instant | None, QueryParameter(description="At or after this time.")]
OfTask = Annotated[str | None, QueryParameter(description="Only this task.")]
OfQueue = Annotated[str | None, QueryParameter(description="Only this queue.")]
Until = Annotated[Instant | None, QueryParameter(description="Before this time.")]
By = Annotated[str, QueryParameter(description="Comma-separated dimensions to group by: task, queue, tenant.")]

_ETAG: Final = re.compile(r'"([0-9]{1,18})"')
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


@contextmanager
def matched_version(headers: Headers) -> Generator[int | None]:
    """Yield the version a change applies to: from `If-Match`, 0 for `If-None-Match: *`, None without either.

    Within the block, a conflict about the version becomes `version_mismatch`. Other conflicts are raised unchanged.

    Raises:
        Problem: the header is malformed, or the object has another version.
    """
    version = _matched_version(headers)
    try:
        yield version
    except (DefinitionConflict, IdentityConflict, JobConflict) as error:
        is_about_version = error.version != 0 if isinstance(error, IdentityConflict) else error.version != version
        if version is None or not is_about_version:
            raise
        state = str(error.state) if isinstance(error, JobConflict) else ""
        raise Problem(412, "version_mismatch", str(error), state=state, version=error.version) from error


def idempotency_key(headers: Headers) -> str | None:
    """Return `Idempotency-Key`; None if it is missing.

    Raises:
        Problem: the key is malformed.
    """
    text = headers.get("idempotency-key")
    if text is not None and _KEY.fullmatch(text) is None:
        raise Problem.about("Idempotency-Key", "must be 1 to 200 ASCII characters without spaces")
    return text


def next_link(request: Request[Any, Any, Any], cursor: str) -> str:
    """Build the `Link` header of the next page."""
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    root = fact_of(request.scope, "taskmq_root")
    return f'<{root}{link_path(request.scope)}?{urlencode([*asked, ("cursor", cursor)])}>; rel="next"'


def select_fields(view: Mapping[str, Any], fields: str | None) -> dict[str, Any]:
    """Select the requested fields of a response; all of them if the caller names none.

    Raises:
        Problem: a field does not exist.
    """
    if not fields:
        return dict(view)
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if name not in view:
            raise Problem.about("fields", f"unknown field {name[:80]!r}", f"known: {', '.join(view)}")
    return {name: view[name] for name in names}


def number_of(cursor: str | None) -> int | None:
    """Return the number in a cursor; None for the first page.

    Raises:
        Problem: the cursor is malformed.
    """
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Problem.about("cursor", f"{cursor[:40]!r} is not a cursor", "`next` of the previous page")
    return int(cursor)


def parts(by: str) -> tuple[str, ...]:
    """Split a comma-separated list of names."""
    return tuple(name.strip() for name in by.split(",") if name.strip())


def _matched_version(headers: Headers) -> int | None:
    if headers.get("if-none-match", "").strip() == "*":
        return 0
    text = headers.get("if-match")
    if text is None or text.strip() == "*":
        return None
    if (found := _ETAG.fullmatch(text.strip())) is None:
        raise Problem.about("If-Match", f"{text[:80]!r} is not a version", 'an ETag from a response, such as "3"')
    return int(found[1])
