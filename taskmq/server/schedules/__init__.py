"""Schedules and reactions over HTTP."""

from taskmq.server.schedules.reactions import REACTIONS
from taskmq.server.schedules.schedules import SCHEDULES

__all__ = ["SCHEDULE_HANDLERS"]

SCHEDULE_HANDLERS = (*SCHEDULES, *REACTIONS)
