"""Groups of failures: those of one tenant, task and error, and how operators marked them. Pure."""

import hashlib
from typing import Final, Literal, NamedTuple

import msgspec

from taskmq.errors import LimitReached

_MOST_MARKS: Final = 500

GroupState = Literal["open", "resolved", "muted"]


class FailureKey(NamedTuple):
    """The tenant, task and error that the failures of a group share.

    Attributes:
        error: type of the error; without one the reason, or the state in which the job ended.
    """

    tenant: str
    task: str
    error: str

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that stand for the group in addresses."""
        return hashlib.sha256("\0".join(self).encode(errors="backslashreplace")).hexdigest()[:12]


class FailureMark(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's mark on a group.

    Attributes:
        at: when it was set, or the last failure of the group if that is later (ms).
        until: end of muting (ms); None: without end.
        by: name of the operator.
    """

    key: FailureKey
    state: Literal["resolved", "muted"]
    at: int
    until: int | None = None
    by: str = ""
    note: str = ""


def state_of(mark: FailureMark | None, *, last: int | None, now: int) -> GroupState:
    """Return the state of a group: a failure after its resolution opens it again, and so does the end of muting.

    Args:
        last: time of its last failure (ms); None if none is kept.
    """
    if mark is None:
        return "open"
    if mark.state == "muted":
        return "muted" if mark.until is None or now < mark.until else "open"
    return "open" if last is not None and last > mark.at else "resolved"


def check_marks(others: int) -> None:
    """Check that a tenant may have one more mark.

    Args:
        others: number of marks on other groups of the tenant.

    Raises:
        LimitReached: the tenant has 500 marks.
    """
    if others >= _MOST_MARKS:
        raise LimitReached(
            f"{others} groups of failures are resolved or muted, of at most {_MOST_MARKS}: reopen some",
            most=_MOST_MARKS,
        )
