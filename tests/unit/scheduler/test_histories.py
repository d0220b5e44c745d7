"""Random histories of schedulers, workers, store and broker: every job ends and is deleted.

$TASKMQ_TEST_STORE_HISTORIES: number of short ones, by their seeds, ten times as fast as those of Hypothesis.
$TASKMQ_TEST_STORE_HISTORIES_FROM: the first of the seeds; with 1 history it repeats a failed one.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmq.errors import BrokerUnavailable, PublishRejected, PublishUnknown
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.states import JobState
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
    "wait",
    "wait long",
)
_HISTORIES: Final = int(os.environ.get("TASKMQ_TEST_STORE_HISTORIES", "20"))
_FROM: Final = int(os.environ.get("TASKMQ_TEST_STORE_HISTORIES_FROM", "0"))
_ACTIONS_OF_SHORT: Final = 8
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


@settings(deadline=None, max_examples=50)
@given(actions=st.lists(st.sampled_from(_ACTIONS), min_size=3, max_size=40), seed=st.integers(0, 2**32))
def test_every_job_ends_once_in_any_history_and_none_is_left_in_flight(actions: Sequence[str], seed: int) -> None:
    async def test(stage: Stage) -> None:
        await _History(stage, random.Random(seed)).check(actions)

    play_one(test)


@pytest.mark.timeout(60 + _HISTORIES)
def test_short_histories_end_as_long_ones_do() -> None:
    for seed in range(_FROM, _FROM + _HISTORIES):
        dice = random.Random(seed)
        actions = dice.choices(_ACTIONS, k=dice.randint(2, _ACTIONS_OF_SHORT))

        async def test(stage: Stage, dice: random.Random = dice, actions: Sequence[str] = actions) -> None:
            await _History(stage, dice).check(actions)

        try:
            play_one(test)
        except BaseException as failure:
            failure.add_note(f"TASKMQ_TEST_STORE_HISTORIES_FROM={seed}: {actions}")
            raise


class _History:
    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self.stage = stage
        self.dice = dice

    async def check(self, actions: Sequence[str]) -> None:
        await self.stage.submit(3)
        self.stage.start()
        player = await self.stage.player_of_declared()
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
            case "wait":
                await asyncio.sleep(dice.random())
            case "wait long":
                await asyncio.sleep(dice.uniform(1, 15))
            case _:
                pass
