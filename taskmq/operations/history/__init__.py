"""History that a caller may see: failures, figures, and rates of queues."""

from taskmq.operations.history.depths import DEPTHS
from taskmq.operations.history.failures import (
    LANES,
    FailureChoice,
    FailureLane,
    FailureLine,
    FailureSource,
    FailuresPage,
    LettersView,
    SourceGap,
    TenantFailures,
    read_letters,
)
from taskmq.operations.history.figures import TenantFigures

__all__ = [
    "DEPTHS",
    "LANES",
    "FailureChoice",
    "FailureLane",
    "FailureLine",
    "FailureSource",
    "FailuresPage",
    "LettersView",
    "SourceGap",
    "TenantFailures",
    "TenantFigures",
    "read_letters",
]
