"""Definitions: named, versioned templates that jobs are made from."""

from typing import Any

import msgspec

from taskmq.api.values import PriorityLevel, ShortText

__all__ = ["DefinitionBody", "DefinitionList", "DefinitionVersions", "DefinitionView"]


class DefinitionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a definition says.

    Attributes:
        task: the name of the task that its jobs run.
        args, kwargs: of its jobs, by place and by name; what is lacking, submissions give.
        queue: the task's own, which is the default.
        expires_in: how long after its submission a job is not to start any more, such as "1h".
        owner: of its jobs, where a submission names none. Through a server only the caller can be named.
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
    """Definitions by name, each in its last version; `next` is what to say as `cursor` for the next page."""

    items: list[DefinitionView]
    next: str | None


class DefinitionVersions(msgspec.Struct, frozen=True):
    """Versions of a definition, the last one first."""

    items: list[DefinitionView]
