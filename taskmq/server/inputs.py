"""What requests are made of, and how it is read: priorities, versions, keys, pages."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from litestar import Request
from litestar.datastructures import Headers
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from taskmq.api.values import Instant, ListPage, Note, PriorityLevel, ShortText
from taskmq.app import TaskMQ
from taskmq.app_api.app_api import AppApi
from taskmq.app_api.jobs.orders import priority_number
from taskmq.errors import DefinitionConflict, IdentityConflict, JobConflict
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import Caller
from taskmq.server.edge import fact_of, link_path
from taskmq.server.problems import Problem
from taskmq.server.settings import MOST_PER_PAGE

__all__ = [
    "ApiGiven",
    "CallerGiven",
    "Cursor",
    "Instant",
    "Limit",
    "ListPage",
    "Note",
    "OwnJobs",
    "PriorityLevel",
    "ServedApp",
    "ShortText",
    "idempotency_key",
    "matched_version",
    "next_link",
    "priority_number",
    "selected",
]

# What every handler may take.
ServedApp = NamedDependency[TaskMQ]
CallerGiven = NamedDependency[Caller]
ApiGiven = NamedDependency[AppApi]
OwnJobs = NamedDependency[TenantJobs]

# A NUL is no part of a text in any database, and of none that people write.
Limit = Annotated[int, QueryParameter(ge=1, le=MOST_PER_PAGE, description="How many at most.")]
Cursor = Annotated[str | None, QueryParameter(description="`next` of the page before; empty for the first page.")]

_ETAG: Final = re.compile(r'"([0-9]{1,18})"')
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


@contextmanager
def matched_version(headers: Headers) -> Generator[int | None]:
    """The version that a change is made for: that of `If-Match`, 0 for `If-None-Match: *`, None without either.

    Within the block a conflict about the version becomes `version_mismatch`; every other conflict stays what it is.

    Raises:
        Problem: it is no version of ours, or what is there has another one.
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
    """`Idempotency-Key`; None where there is none.

    Raises:
        Problem: it is no key.
    """
    text = headers.get("idempotency-key")
    if text is not None and _KEY.fullmatch(text) is None:
        raise Problem.about("Idempotency-Key", "1 to 200 characters of ASCII without spaces")
    return text


def next_link(request: Request[Any, Any, Any], cursor: str) -> str:
    """The `Link` to the next page of what was asked for."""
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    root = fact_of(request.scope, "taskmq_root")
    return f'<{root}{link_path(request.scope)}?{urlencode([*asked, ("cursor", cursor)])}>; rel="next"'


def selected(view: Mapping[str, Any], fields: str | None) -> dict[str, Any]:
    """The fields of an answer that are wanted; all of them where the caller names none.

    Raises:
        Problem: there is no such field.
    """
    if not fields:
        return dict(view)
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if name not in view:
            raise Problem.about("fields", f"there is no field {name[:80]!r}", f"known: {', '.join(view)}")
    return {name: view[name] for name in names}


def _matched_version(headers: Headers) -> int | None:
    if headers.get("if-none-match", "").strip() == "*":
        return 0
    text = headers.get("if-match")
    if text is None or text.strip() == "*":
        return None
    if (found := _ETAG.fullmatch(text.strip())) is None:
        raise Problem.about("If-Match", f"{text[:80]!r} is no version", 'an ETag as it was answered, such as "3"')
    return int(found[1])
