"""Groups of failures: their ids, states and limits."""

import pytest
from msgspec.structs import replace

from taskmq.errors import LimitReached
from taskmq.model.history.failure_groups import FailureKey, FailureMark, check_marks, state_of

_KEY = FailureKey("acme", "charge", "OSError")
_RESOLVED = FailureMark(key=_KEY, state="resolved", at=100)
_MUTED = FailureMark(key=_KEY, state="muted", at=100, until=200)


def test_the_id_of_a_group_depends_on_tenant_task_and_error() -> None:
    keys = [
        _KEY,
        _KEY._replace(tenant=""),
        _KEY._replace(task="c"),
        _KEY._replace(error="harge"),
        FailureKey("", "\ud800", ""),
    ]

    assert len({key.id for key in keys}) == 5
    assert all(len(key.id) == 12 for key in keys)


@pytest.mark.parametrize(
    ("mark", "last", "now", "state"),
    [
        (None, 5, 10, "open"),
        (_RESOLVED, None, 150, "resolved"),
        (_RESOLVED, 100, 150, "resolved"),
        (_RESOLVED, 101, 150, "open"),
        (_MUTED, 150, 199, "muted"),
        (_MUTED, None, 200, "open"),
        (replace(_MUTED, until=None), 150, 2**50, "muted"),
    ],
)
def test_the_next_failure_opens_a_resolved_group_and_time_a_muted_one(
    mark: FailureMark | None, last: int | None, now: int, state: str
) -> None:
    assert state_of(mark, last=last, now=now) == state


def test_a_tenant_has_at_most_500_marks() -> None:
    check_marks(499)
    with pytest.raises(LimitReached, match="reopen some"):
        check_marks(500)
