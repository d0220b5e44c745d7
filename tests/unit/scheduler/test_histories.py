"""Random histories of schedulers, workers, store and broker: every job ends and is deleted.

Jobs travel alone or, once the scheduler knows their runs to be short, in parcels. A parcel is requeued as a whole,
and a worker returns each job of a redelivered message to the scheduler.

$TASKMQ_TEST_STORE_HISTORIES: number of short ones, by their seeds, ten times as fast as those of Hypothesis.
$TASKMQ_TEST_STORE_HISTORIES_FROM: the first of the seeds; with 1 history it repeats a failed one.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import TaskMQ
from taskmq.contracts.broker import Delivery, Subscription
from taskmq.errors import BrokerUnavailable, PublishRejected, PublishUnknown
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.states import JobState
from taskmq.model.topology import parcels_queue
from taskmq.worker.intake.parcels import Parcels
from tests.unit.scheduler.stage import Player, Process, Stage, play_one, until

_ACTIONS: Final = (
    "submit",
    "submit later",
    "start",
    "stop",
    "kill",
    "die publishing",
    "cut off",
    "reach again",
    "refuse",
    "lose confirms",
    "no broker",
    "report",
    "report twice",
    "redeliver",
    "teach",
    "finish",
    "wait",
    "wait long",
)
_HISTORIES: Final = int(os.environ.get("TASKMQ_TEST_STORE_HISTORIES", "20"))
_FROM: Final = int(os.environ.get("TASKMQ_TEST_STORE_HISTORIES_FROM", "0"))
_ACTIONS_OF_SHORT: Final = 8
# The share of histories that begin with a short task, and its runs until it is known to be short.
_TAUGHT: Final = 0.25
_AT_ONCE: Final = 0.5
_TAUGHT_BY: Final = 120
_SLOTS: Final = 500
# Fewer may have no redelivered parcel.
_ENOUGH: Final = 20
_KINDS: Final[tuple[ReportKind, ...]] = (
    "succeeded",
    "failed",
    "retry",
    "snoozed",
    "interrupted",
    "refused",
    "expired",
    "cancelled",
    "started",
)


@pytest.mark.nightly("tests/unit/scheduler/test_histories.py::test_short_histories_end_as_long_ones_do")
@given(actions=st.lists(st.sampled_from(_ACTIONS), min_size=3, max_size=40), seed=st.integers(0, 2**32))
def test_every_job_ends_once_in_any_history_and_none_is_left_in_flight(actions: Sequence[str], seed: int) -> None:
    async def test(stage: Stage) -> None:
        await _History(stage, random.Random(seed)).check(actions)

    play_one(test, _define)


@pytest.mark.timeout(60 + _HISTORIES)
def test_short_histories_end_as_long_ones_do() -> None:
    parcels = redelivered = 0
    for seed in range(_FROM, _FROM + _HISTORIES):
        dice = random.Random(seed)
        actions = dice.choices(_ACTIONS, k=dice.randint(2, _ACTIONS_OF_SHORT))

        async def test(stage: Stage, dice: random.Random = dice, actions: Sequence[str] = actions) -> None:
            nonlocal parcels, redelivered
            history = _History(stage, dice)
            await history.check(actions)
            parcels += history.parcels
            redelivered += history.redelivered

        try:
            play_one(test, _define)
        except BaseException as failure:
            failure.add_note(f"TASKMQ_TEST_STORE_HISTORIES_FROM={seed}: {actions}")
            raise
    print(f"\n{_HISTORIES:,} histories, {parcels:,} parcels, {redelivered:,} of them redelivered")
    assert redelivered or _HISTORIES < _ENOUGH


def _define(app: TaskMQ) -> None:
    @app.task(name="t", queue="work")
    async def t() -> None: ...


class _History:
    """A history of random actions.

    Attributes:
        parcels, redelivered: number of the parcels that came, and of those that came again.
    """

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self.stage = stage
        self.dice = dice
        self.parcels = 0
        self.redelivered = 0

    async def check(self, actions: Sequence[str]) -> None:
        await self.stage.submit(3)
        self.stage.start()
        player = await self.stage.player_of_declared()
        unpacker = Parcels(give_back=lambda _: None, return_part=lambda _: False)

        def unpack(delivery: Delivery) -> None:
            self.parcels += 1
            self.redelivered += delivery.redelivered
            for part in unpacker.unpack(delivery):
                player.take(part)

        await player.broker.consume([Subscription(parcels_queue("work"), 1000)], unpack)
        if self.dice.random() < _TAUGHT:
            first = ("teach", "redeliver") if self.dice.random() < _AT_ONCE else ("teach",)
            actions = [*first, *actions]
        for action in actions:
            await self._do(action, player)
        for process in self._live():
            process.store.is_reachable = True
            vars(process.broker)["_faults"].clear()
        if not self._live():
            self.stage.start()
        self.stage.plays(player)

        await self.stage.all_ended()
        await until(lambda: self.stage.batches() == 0)
        unpacker.close()

        for process in self._live():
            assert process.scheduler.status().in_flight == {}
        # The broker has lost nothing here, so only a run is given up whose message came back, and whose worker says
        # nothing any more.
        lost = {process.scheduler.status().lost for process in self.stage.processes}
        assert lost == {0} or "redeliver" in actions
        assert {job.state for job in self.stage.database.jobs.values()} <= {
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.EXPIRED,
            JobState.CANCELLED,
        }

    def _live(self) -> list[Process]:
        return [process for process in self.stage.processes if not process.task.done()]

    async def _do(self, action: str, player: Player) -> None:
        stage, dice, live = self.stage, self.dice, self._live()
        match action:
            case "submit":
                await stage.submit(dice.randint(1, 100), announced=dice.random() < 0.5, priority=dice.randint(0, 9))
            case "submit later":
                await stage.submit(dice.randint(1, 20), due=stage.clock.now_ms() + dice.randint(0, 20_000))
            case "start" if len(live) < 4:
                stage.start()
            case "stop" if live:
                process = dice.choice(live)
                process.store.is_reachable = True
                await process.stop()
            case "kill" if live:
                await dice.choice(live).kill()
            case "die publishing" if live:
                process = dice.choice(live)
                process.broker.hang_publishes()
                await stage.submit(10)
                await asyncio.sleep(dice.uniform(0, 2))
                await process.kill()
            case "cut off" if live:
                dice.choice(live).store.is_reachable = False
            case "reach again":
                for process in live:
                    process.store.is_reachable = True
            case "refuse" if live:
                dice.choice(live).broker.fail_publishes(dice.randint(1, 30), PublishRejected("full"))
            case "lose confirms" if live:
                dice.choice(live).broker.lose_confirms(dice.randint(1, 30), PublishUnknown("no confirm"))
            case "no broker" if live:
                dice.choice(live).broker.fail_publishes(dice.randint(1, 60), BrokerUnavailable("no broker"))
            case "report" | "report twice":
                for envelope in player.envelopes[:: dice.randint(1, 3)]:
                    for _ in range(2 if action == "report twice" else 1):
                        await player.report(envelope, dice.choice(_KINDS), delay=dice.randint(0, 5_000))
            case "redeliver":
                taken, player.deliveries = player.deliveries, []
                for delivery in reversed(taken):
                    delivery.requeue()
            case "teach" if live:
                await stage.submit(_TAUGHT_BY)
                for _ in range(3):
                    await asyncio.sleep(1)
                    stage.worker_says(slots=_SLOTS, parcels=True)
                    await player.finish()
                await stage.submit(60, announced=True)
                await asyncio.sleep(1)
            case "finish":
                await player.finish()
            case "wait":
                await asyncio.sleep(dice.random())
            case "wait long":
                await asyncio.sleep(dice.uniform(1, 15))
            case _:
                pass
