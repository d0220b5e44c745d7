"""Decisions about limits that many runs share. Pure."""

from taskmq.model.limits.rates import (
    LEAD,
    RateBook,
    RateDemand,
    count_starts,
    first_start,
    used_until,
    wait_for_start,
)

__all__ = ["LEAD", "RateBook", "RateDemand", "count_starts", "first_start", "used_until", "wait_for_start"]
