"""History that a caller may see: failures, figures, and rates of queues."""

from taskmq.operations.history.depths import DEPTHS
from taskmq.operations.history.failure_lines import (
    LANES,
    FailureChoice,
    FailureLane,
    FailureLine,
    FailureSource,
    FailuresPage,
    LettersView,
    SourceGap,
)
from taskmq.operations.history.failures import TenantFailures, read_letters
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
