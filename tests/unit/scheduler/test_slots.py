"""Which slots a scheduler holds, as it knows it."""

import asyncio

from taskmq.scheduler.slots import HeldLease, SlotLeases
from tests.unit.scheduler.stage import Stage, play, until


def test_the_late_end_of_a_slot_s_work_leaves_the_next_hold_of_it_alone() -> None:
    async def test(stage: Stage) -> None:
        store, taken, lost = stage.store, list[HeldLease](), list[HeldLease]()
        leases = SlotLeases(
            store.dispatching,
            address="memory://",
            me="scheduler",
            taken=taken.append,
            given=lambda _: None,
            lost=lost.append,
            freed=lambda: None,
            refused=lambda _: None,
        )
        running = asyncio.create_task(leases.run())
        await until(lambda: len(leases.held) == 8)
        store.is_reachable = False
        await until(lambda: len(lost) == 8)
        store.is_reachable = True
        await until(lambda: len(leases.held) == 8)

        for lease in lost:
            await leases.release(lease)
        await stage.pass_by(20)

        assert (len(leases.held), len(taken), len(lost)) == (8, 16, 8)
        leases.stop()
        await running
        await leases.aclose()

    play(test)
