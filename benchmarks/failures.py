"""What ends one run and leaves the others alone."""

__all__ = ["RunFailed"]


class RunFailed(Exception):
    """A contender did not do its work; what it said stands in the message."""
