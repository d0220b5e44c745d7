"""What the parts of the suite have in common: the adapter's part, and how its states are used."""

import asyncio
import uuid

from taskmq.contracts.stores import State
from taskmq.testing.runner import Suite

__all__ = ["LONG", "StateCase", "new"]

LONG = 3_600.0


class StateCase(Suite):
    """One test of the suite at work.

    Attributes:
        short: seconds that pass before something expires in a test; a server with coarse time needs more.
    """

    short: float = 0.4

    def open_state(self, name: str = "") -> State:
        """A new state on the test's server, not yet connected. Called inside the running loop."""
        raise NotImplementedError

    async def advance(self, seconds: float) -> None:
        """Let this much time pass for the store."""
        await asyncio.sleep(seconds)

    def state(self, name: str = "") -> State:
        """A state that is closed at the end of the test."""
        state = self.open_state(name)
        self.opened.push_async_callback(state.aclose)
        return state


def new(text: str) -> str:
    """A name that no other test uses."""
    return f"{text} {uuid.uuid4()}"
