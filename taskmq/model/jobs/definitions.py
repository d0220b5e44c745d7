"""Definitions: named, versioned templates of jobs and schedules. Pure.

    put("monthly", report(region="eu"))  ->  version 1
    put("monthly", the same)             ->  version 1 still
    put("monthly", report(region="us"))  ->  version 2; jobs of version 1 keep naming version 1
    delete("monthly")                    ->  no longer found; its versions are kept
    put("monthly", ...)                  ->  version 3

Two contents are equal if their encoded texts are: `true`, `1` and `1.0` are three different values.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec


class DefinitionContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of one version of a definition. Unset fields are the task's own.

    Attributes:
        task: the name of the task that its jobs run.
        args, kwargs: of the call, as plain JSON values: none, some or all of those that the task needs.
        queue: the queue of its jobs; "": the task's own.
        priority: 0 (lowest) to 9; None: the task's own.
        expires: ms after submission until which a job may start; None: the task's own.
        labels, description, owner, timeout, max_attempts, retry, guarantee, resources, place, preemptible: defaults
            for its jobs as plain JSON values, which a submission may override; durations in seconds.
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
    timeout: float | None = None
    max_attempts: int | None = None
    retry: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    guarantee: Literal["at_least_once", "at_most_once"] | None = None
    resources: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    place: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    preemptible: bool | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a definition.

    Attributes:
        tenant: the owner; "" for definitions without one.
        name: unique within the tenant; submissions use it.
        version: from 1; increases by 1 with each different content.
        at: when the version was created, ms since the epoch by the store's clock.
        by: the user who created it.
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
    """Encode a content as stores keep it; equal contents have equal texts.

    Raises:
        UnicodeEncodeError: a text cannot be encoded as UTF-8.
    """
    return _encoder.encode(content)


def decode_content(text: str | bytes) -> DefinitionContent:
    """Decode the output of `encode_content`."""
    return _decoder.decode(text)


def merge_call(
    content: DefinitionContent, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a job's arguments: its positional ones replace all of the definition's, named ones replace by name."""
    return args or tuple(content.args), {**content.kwargs, **kwargs}
