"""Failure of one run; other runs continue."""

__all__ = ["RunFailed"]


class RunFailed(Exception):
    """Raised when a contender did not complete its work; the message includes its output."""
