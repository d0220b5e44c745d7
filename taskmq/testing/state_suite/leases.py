"""Tests of leases and members of a state: the cases of every coordinator, by the server's time."""

from taskmq.contracts.stores import Coordinator
from taskmq.testing.coordinator_suite import CoordinatorCases
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new


class Leases(CoordinatorCases, StateCase):
    """Every guarantee of `State.leases`."""

    def coordinator(self) -> Coordinator:
        return self.state().leases

    @case
    async def test_leases_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await state.leases.acquire(key, owner="a", seconds=LONG)

        await state.aclose()

        held = await other.leases.find(key)
        assert held is not None
        assert held.token == token

    @case
    async def test_a_renewed_short_lease_stays_valid(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await state.leases.acquire(key, owner="a", seconds=self.short)
        assert isinstance(token, int)

        assert await state.leases.renew(key, token=token, seconds=LONG)
        await self.advance(self.short * 1.5)

        held = await other.leases.find(key)
        assert held is not None
        assert held.token == token
