"""Schemas of groups of failures."""

from typing import Annotated

import msgspec

from taskmq.api.values import Note
from taskmq.model.history.failure_groups import GroupState


class FailureGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one tenant, task and error.

    Attributes:
        id: derived from tenant, task and error.
        error: the error's type; without one the reason, or the state in which the jobs ended.
        state: `resolved` until the next failure; `muted` until its end.
        failures: failures in the period.
        before: failures in the period of the same length before it.
        trend: failures in each of 24 equal parts of the period, the earliest first.
        first, last: the first and the last failure that was counted.
        message: up to 200 characters of the redacted message of one failure.
        is_new: whether there was no failure before the period.
        first_version: the version of the app that the worker of the first failure ran; "" if it is unknown.
        is_back: whether it failed after it was resolved.
        until: the end of muting; None if it has none.
        marked_at, marked_by, note: when, by whom and why the group was resolved or muted last.
    """

    id: str
    tenant: str
    task: str
    error: str
    state: GroupState
    failures: int
    before: int
    trend: list[int]
    first: str | None
    last: str | None
    message: str
    is_new: bool
    first_version: str
    is_back: bool
    until: str | None
    marked_at: str | None
    marked_by: str
    note: str


class FailureGroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of failures, those with the most failures first.

    Attributes:
        since: start of the period.
        open, resolved, muted: number of groups in each state.
        is_complete: whether all failures were counted; false if there may be more than 10,000.
    """

    items: list[FailureGroupView]
    since: str | None
    open: int
    resolved: int
    muted: int
    is_complete: bool


class ResolveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason of a change of a group."""

    note: Note = ""


class MuteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The duration of muting in seconds, null for no end, and the reason."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=365 * 86_400)] | None = None
    note: Note = ""
