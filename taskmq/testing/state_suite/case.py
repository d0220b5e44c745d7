"""Base of the tests in the state suite."""

import asyncio
import uuid

from taskmq.contracts.stores import State
from taskmq.testing.runner import Suite

LONG = 3_600.0


class StateCase(Suite):
    """Base of a test of the state suite.

    Attributes:
        short: seconds until something expires in a test; a server with coarse time needs more.
    """

    short: float = 0.4

    def open_state(self, name: str = "") -> State:
        """Return a new state on the test's server, not yet connected. Called inside the running loop."""
        raise NotImplementedError

    async def advance(self, seconds: float) -> None:
        """Let time pass for the store."""
        await asyncio.sleep(seconds)

    def state(self, name: str = "") -> State:
        """Return a state that is closed at the end of the test."""
        state = self.open_state(name)
        self.opened.push_async_callback(state.aclose)
        return state


def new(text: str) -> str:
    """Return a name that no other test uses."""
    return f"{text} {uuid.uuid4()}"
