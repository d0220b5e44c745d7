"""A state that fails at any one call, before or after its effect, does not change a workflow."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from taskmq.contracts.stores.flows import NodeState
from taskmq.errors import StateUnavailable
from tests.unit.workflow.shop import Shop


class _Flaky:
    """A flow store whose `number`-th call fails."""

    def __init__(self, inner: Any, number: int, *, is_late: bool) -> None:
        self._inner = inner
        self._number = number
        self._is_late = is_late
        self.calls = 0
        self.failed: str | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            is_it = self.calls == self._number
            if is_it:
                self.failed = name
            if is_it and not self._is_late:
                raise StateUnavailable("not now", is_certain=True)
            result = await method(*args, **kwargs)
            if is_it:
                raise StateUnavailable("the answer was lost", is_certain=False)
            return result

        return call


async def _one(number: int, *, is_late: bool) -> str | None:
    """Run a workflow with a map, a join and a failure through one fault; return the failed call."""
    shop = Shop()
    shop.broken = {"bad"}
    async with shop.open():
        state: Any = shop.app.sessions.current().state
        flaky = state._flows = _Flaky(state._flows, number, is_late=is_late)
        from taskmq.workflow.dag import dag

        graph = dag()
        numbers = graph.add(shop.numbers.s(3))
        mapped = graph.add(shop.add.s().each(limit=2), after=[numbers], name="each")
        total = graph.add(shop.total.s(), after=[mapped])
        bad = graph.add(shop.named.s("bad"), after=[], may_fail=True)
        graph.add(shop.named.si("end"), after=[total, bad], rule="always", name="end")
        # From here on the gate of its own worker has the broken one as well.
        for _ in range(3):
            try:
                flow = await graph.asend(flow_id="it")
                break
            except StateUnavailable:
                continue
        for _ in range(3):
            try:
                assert await flow.aresult(20) == {"end": "end"}
                assert await flow.aresult_of(total) == 6
                break
            except StateUnavailable:
                continue
        else:
            raise AssertionError("it has failed more than once")
        store = flaky._inner
        ends = Counter(await store.ended_keys("it", offset=0, limit=100))
        assert set(ends.values()) == {1}
        states = await store.states("it")
        assert Counter(states.values()) == {NodeState.SUCCEEDED: 7, NodeState.FAILED: 1}
        assert sorted(shop.ran) == ["add 0 1", "add 1 1", "add 2 1", "bad", "end"]
    return flaky.failed


@pytest.mark.real_time
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
async def test_a_state_that_fails_at_any_call_loses_nothing_and_runs_nothing_twice(*, is_late: bool) -> None:
    seen = await asyncio.gather(*(_one(number, is_late=is_late) for number in range(1, 46)))
    assert {"create", "take", "start", "end", "mark_done", "expand", "outcomes"} <= set(seen)
