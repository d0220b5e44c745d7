"""Definitions: named, versioned templates of jobs."""

from typing import Any

import msgspec

from taskmq.api.job_requests import JobTerms
from taskmq.api.values import ShortText


class DefinitionBody(JobTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a definition.

    Attributes:
        task: the name of the task to run.
        args, kwargs: positional and keyword arguments. Submissions supply the missing ones.
    """

    task: ShortText
    args: list[Any] = msgspec.field(default_factory=list[Any])
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class DefinitionView(DefinitionBody, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A version of a definition."""

    name: str
    tenant: str
    version: int
    at: str | None
    by: str


class DefinitionList(msgspec.Struct, frozen=True):
    """The latest version of each definition, ordered by name. `next` is the `cursor` of the next page."""

    items: list[DefinitionView]
    next: str | None


class DefinitionVersions(msgspec.Struct, frozen=True):
    """Versions of a definition, newest first."""

    items: list[DefinitionView]
