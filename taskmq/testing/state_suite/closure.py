"""Tests of closing a state."""

import asyncio

from taskmq.contracts.stores import KeptRecord, RecordChange, TakenMessage
from taskmq.errors import StateUnavailable
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new
from taskmq.testing.state_suite.delays import waiting
from taskmq.testing.state_suite.progress import progress_record
from taskmq.testing.state_suite.records import success_record


class StateClosureCases(StateCase):
    """Behavior of a closed state."""

    @case
    async def test_a_state_can_be_closed_unused_twice_and_concurrently(self) -> None:
        unused, used = self.state(), self.state()
        await used.results.get(new("job"))
        assert "://" in used.address

        for state in (unused, used):
            await asyncio.gather(state.aclose(), state.aclose())
            await state.aclose()

    @case
    async def test_closing_ends_pending_waits(self) -> None:
        state = self.state()
        waits = [asyncio.create_task(state.results.wait(new("job"), timeout=None)) for _ in range(3)]
        await asyncio.sleep(0.05)

        await state.aclose()

        done, pending = await asyncio.wait(waits, timeout=self.patience)
        assert not pending
        for wait in done:
            error = wait.exception()
            assert isinstance(error, StateUnavailable) if error else wait.result() is None

    @case
    async def test_a_closed_state_raises(self) -> None:
        state = self.state()
        await state.results.get(new("job"))
        await state.aclose()

        for call in (
            state.results.put(success_record(new("job")), ttl=LONG),
            state.results.get(new("job")),
            state.results.wait(new("job"), timeout=self.patience),
            state.starts.begin(new("job"), ttl=LONG),
            state.progress.report(progress_record(new("job")), ttl=LONG),
            state.progress.find(new("job")),
            state.checkpoints.begin(new("job"), attempt=1, ttl=LONG),
            state.checkpoints.save(new("job"), "a", b"1", token=1, ttl=LONG),
            state.checkpoints.forget(new("job"), token=1),
            state.starts.end(new("job")),
            state.leases.acquire(new("key"), owner="a", seconds=LONG),
            state.leases.renew(new("key"), token=1, seconds=LONG),
            state.leases.release(new("key"), token=1),
            state.leases.find(new("key")),
            state.schedules.read([new("name")]),
            state.schedules.swap([RecordChange(new("name"), "", KeptRecord("0123456789abcdef", b""))], ttl=LONG),
            state.schedules.define(new("app"), "a", before=None, after=b""),
            state.schedules.tell(new("app"), ["a"]),
            state.schedules.list_changed(new("app"), 0, limit=1),
            state.delays.put(waiting(new("job"))),
            state.delays.take(now=0, limit=1, lease=LONG),
            state.delays.mark_done([TakenMessage(waiting(new("job")), "1")]),
            state.delays.give_back([TakenMessage(waiting(new("job")), "1")]),
            state.delays.next_due(),
            state.delays.count(),
            state.delays.find(new("job")),
            state.delays.list(limit=1),
            state.delays.cancel(new("job")),
            state.delays.swap(waiting("job"), waiting("job", due=0)),
        ):
            try:
                async with asyncio.timeout(self.patience):
                    await call
            except StateUnavailable:
                continue
            raise AssertionError(f"{call!r} of a closed state did not raise StateUnavailable")
