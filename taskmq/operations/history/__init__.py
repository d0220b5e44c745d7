"""What a caller may see of what has happened, and change of when there are alerts."""

from taskmq.operations.history.alerts import TenantAlerts
from taskmq.operations.history.failures import (
    LANES,
    FailureChoice,
    FailureLane,
    FailureLine,
    FailureSource,
    FailuresPage,
    LettersLook,
    SourceGap,
    TenantFailures,
    look_at_letters,
)
from taskmq.operations.history.figures import TenantFigures

__all__ = [
    "LANES",
    "FailureChoice",
    "FailureLane",
    "FailureLine",
    "FailureSource",
    "FailuresPage",
    "LettersLook",
    "SourceGap",
    "TenantAlerts",
    "TenantFailures",
    "TenantFigures",
    "look_at_letters",
]
