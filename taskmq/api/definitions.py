"""Definitions: named, versioned templates of jobs."""

from typing import Any

import msgspec

from taskmq.api.values import PriorityLevel, ShortText

__all__ = ["DefinitionBody", "DefinitionList", "DefinitionVersions", "DefinitionView"]


class DefinitionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a definition.

    Attributes:
        task: the name of the task to run.
        args, kwargs: positional and keyword arguments. Submissions supply the missing ones.
        queue: the task's own queue, which is the default.
        expires_in: the time after submission during which a job may start, such as "1h".
        owner: the owner of jobs whose submission names none. Through a server, this can only be the caller.
    """

    task: ShortText
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    queue: ShortText = ""
    priority: PriorityLevel | None = None
    expires_in: ShortText | float | None = None
    description: str = ""
    owner: ShortText = ""
    labels: dict[str, str] = {}


class DefinitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a definition."""

    name: str
    tenant: str
    version: int
    at: str | None
    by: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: int | None
    expires_in: float | None
    description: str
    owner: str
    labels: dict[str, str]


class DefinitionList(msgspec.Struct, frozen=True):
    """The latest version of each definition, ordered by name. `next` is the `cursor` of the next page."""

    items: list[DefinitionView]
    next: str | None


class DefinitionVersions(msgspec.Struct, frozen=True):
    """Versions of a definition, newest first."""

    items: list[DefinitionView]
