"""Definitions: named, versioned templates that jobs and schedules are made from. Pure.

    put("monthly", report(region="eu"))  ->  version 1
    put("monthly", the same)             ->  version 1 still
    put("monthly", report(region="us"))  ->  version 2; jobs of version 1 go on naming version 1
    delete("monthly")                    ->  not found any more; its versions are kept
    put("monthly", ...)                  ->  version 3

Two contents are the same where their texts are: `true`, `1` and `1.0` are three different values.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["Definition", "DefinitionContent", "decode_content", "encode_content", "merged"]


class DefinitionContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a version of a definition says. What it leaves out is as the task has it.

    Attributes:
        task: the name of the task that its jobs run.
        args, kwargs: of the call, as plain JSON values: none, some or all that the task needs.
        queue: where its jobs wait; "": the task's own.
        priority: 0 (lowest) to 9; None: the task's own.
        expires: how many ms after its submission a job is not to start any more; None: as the task says.
        labels, description, owner: of its jobs, where a submission says nothing else.
    """

    task: str
    args: list[Any] = msgspec.field(default_factory=list[Any])
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    queue: str = ""
    priority: int | None = None
    expires: int | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    description: str = ""
    owner: str = ""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a definition.

    Attributes:
        tenant: whose; "" of those that belong to none.
        name: by which jobs are submitted, one of the tenant's.
        version: from 1; grows by 1 with each other content.
        at: when the version was made, ms since the epoch by the store's clock.
        by: who has made it.
    """

    tenant: str
    name: str
    version: int
    at: int
    by: str = ""
    content: DefinitionContent


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(DefinitionContent)


def encode_content(content: DefinitionContent) -> bytes:
    """The content as stores keep it; contents that are the same have the same text.

    Raises:
        UnicodeEncodeError: a text has no form in UTF-8.
    """
    return _encoder.encode(content)


def decode_content(text: str | bytes) -> DefinitionContent:
    """What `encode_content` has made."""
    return _decoder.decode(text)


def merged(
    content: DefinitionContent, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a job: given positional ones replace all of the definition's, named ones theirs."""
    return args or tuple(content.args), {**content.kwargs, **kwargs}
