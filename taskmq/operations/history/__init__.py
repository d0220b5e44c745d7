"""What a caller may see of what has happened, and change of when there are alerts."""

from taskmq.operations.history.alerts import TenantAlerts
from taskmq.operations.history.figures import TenantFigures

__all__ = ["TenantAlerts", "TenantFigures"]
