"""History that a caller may see (failures, figures, alerts), and the alert rules that it may change."""

from taskmq.operations.history.alerts import TenantAlerts
from taskmq.operations.history.depths import DEPTHS
from taskmq.operations.history.failure_groups import FailureGroup, FailureGroups, TenantFailureGroups
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
    "FailureGroup",
    "FailureGroups",
    "FailureLane",
    "FailureLine",
    "FailureSource",
    "FailuresPage",
    "LettersView",
    "SourceGap",
    "TenantAlerts",
    "TenantFailureGroups",
    "TenantFailures",
    "TenantFigures",
    "read_letters",
]
