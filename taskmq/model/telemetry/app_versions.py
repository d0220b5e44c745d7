"""Versions of an app's code, as its processes announce them. Pure.

A job is held if the code before its saved calls has changed. It can continue only with other code. So a scheduler
releases it when no worker of its queue runs a version that was tried: one that held the job, or one for which it was
released. Each version is tried once, so the releases of a job end.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from taskmq.errors import InvalidOption

LONGEST_VERSION: Final = 100
"""Maximum characters of a version."""


class AppVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the app.

    Attributes:
        first, last: when workers first and last reported it, in ms since the epoch, to within about a minute.
    """

    version: str
    first: int
    last: int


class WorkerVersion(AppVersion, frozen=True, kw_only=True):
    """A version of the app that one worker ran."""

    worker: str


def check_app_version(text: str) -> str:
    """Return `text` if it can be a version.

    Raises:
        InvalidOption: it is empty, too long, or not printable.
    """
    if not text.isprintable() or not 0 < len(text.strip()) <= len(text) <= LONGEST_VERSION:
        raise InvalidOption(
            f"version={text[:LONGEST_VERSION]!r}: must be 1 to {LONGEST_VERSION} printable characters"
        )
    return text


def version_at(reports: Sequence[WorkerVersion], started: int | None) -> str:
    """Return the version that a worker ran at an instant (ms since the epoch); "" if it is unknown.

    Args:
        reports: the versions of workers of its name, by the time of their first report.
        started: start of a run; its worker may have been reported a little later. None: there was no run.
    """
    if started is None:
        return ""
    before = [one.version for one in reports if one.first <= started]
    return before[-1] if before else next((one.version for one in reports), "")


def can_be_released(tried: Collection[str], live: Collection[str]) -> bool:
    """Return whether a job that its code holds is to be released.

    Args:
        tried: versions that held it, or for which it was released.
        live: versions of the live workers of its queue; "" for a worker without one.
    """
    return any(live) and set(live).isdisjoint(tried)
