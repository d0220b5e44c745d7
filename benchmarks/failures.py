"""Failure of one run; other runs continue."""


class RunFailed(Exception):
    """Raised when a contender did not complete its work; the message includes its output."""
