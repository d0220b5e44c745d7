"""Leases are renewed while any is held, whatever happens to the state."""

import asyncio

import pytest

from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import StateUnavailable
from tests.unit.worker.staged import settle_loop


class Renewals:
    """Renewal times of 30 s leases on the loop's clock; each answer is used once, the last one forever."""

    def __init__(self, *answers: bool | BaseException) -> None:
        self.answers = list(answers)
        self.at: list[float] = []
        self.keeper = LeaseKeeper("places", seconds=30, renew=self.renew)

    async def renew(self) -> bool:
        self.at.append(round(asyncio.get_running_loop().time() - self.began, 3))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def watch(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.keeper.watch()


async def test_leases_are_renewed_three_times_per_lifetime_until_none_is_held() -> None:
    renewals = Renewals(True, True, False)
    renewals.watch()
    renewals.keeper.watch()
    await asyncio.sleep(100)
    assert renewals.at == [10, 20, 30]

    renewals.keeper.watch()
    await asyncio.sleep(100)
    assert renewals.at == [10, 20, 30, 110]


async def test_failed_renewals_are_retried_faster_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = StateUnavailable("away")
    renewals = Renewals(True, away, away, True, False)
    renewals.watch()
    await asyncio.sleep(100)
    assert renewals.at == [10, 20, 21, 22, 32]
    assert [record.message for record in caplog.records] == ["renewing places failed, will retry: away"]


async def test_an_adapter_error_does_not_stop_renewals(caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals(ZeroDivisionError(), False)
    renewals.watch()
    await asyncio.sleep(100)
    assert renewals.at == [10, 11]
    assert [record.message for record in caplog.records] == ["renewing places failed"]


async def test_an_urgent_renewal_runs_at_once_after_one_in_progress() -> None:
    answer = asyncio.Event()
    seen: list[float] = []
    began = asyncio.get_running_loop().time()

    async def renew() -> bool:
        seen.append(asyncio.get_running_loop().time() - began)
        await answer.wait()
        return len(seen) < 3

    keeper = LeaseKeeper("places", seconds=30, renew=renew)
    keeper.watch()
    keeper.hurry()
    await settle_loop()
    assert seen == pytest.approx([0], abs=1e-6)
    keeper.hurry()
    keeper.hurry()
    answer.set()
    await asyncio.sleep(100)
    assert seen == pytest.approx([0, 0, 10], abs=1e-6)


async def test_closing_stops_renewals_and_waits_for_one_in_progress() -> None:
    ended: list[str] = []

    async def renew() -> bool:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("ended")
        return True

    keeper = LeaseKeeper("places", seconds=30, renew=renew)
    await keeper.aclose()
    keeper.watch()
    await asyncio.sleep(15)
    await keeper.aclose()
    assert ended == ["ended"]
    await keeper.aclose()
    await asyncio.sleep(100)
    assert ended == ["ended"]
