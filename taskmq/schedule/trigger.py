"""What makes a schedule due."""

from typing import Protocol

__all__ = ["Trigger"]


class Trigger(Protocol):
    """A rule that yields nominal instants, in whole milliseconds since the epoch.

    A trigger is a frozen value: equal ones yield equal instants, on every host, whenever they are asked. It reads no
    clock, so what it answers follows from its argument alone, and from the time zone data of the host.
    """

    def next_after(self, instant: int, /) -> int | None:
        """The first nominal instant strictly after `instant`; None when there is none any more."""
        ...

    def describe(self) -> str:
        """The rule in plain English, such as "every 30 seconds"."""
        ...
