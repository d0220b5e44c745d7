"""Progress and saved values that a scheduler cannot write."""

from collections.abc import Collection, Sequence

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import HeldJob
from taskmq.contracts.stores import ProgressRecord
from taskmq.errors import StoreUnavailable
from taskmq.model.history.journals import RunProgress, SaveAnswer, SavedValues, SaveRequest, decode_answers
from taskmq.model.history.signals import JobSignal, SignalEffect
from taskmq.model.jobs.reports import Report
from taskmq.scheduler.reports import ReportedJournals
from taskmq_local import open_memory_broker
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time

_AT = 1_700_000_000_000


class _Picky:
    """A `JournalStore` that cannot keep what a run named "odd" reports, and is down at first if told so."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down
        self.saved: list[str] = []

    async def report(self, reports: Sequence[Report]) -> None:
        self._check(reports)

    async def save(self, reports: Sequence[Report]) -> list[SaveAnswer]:
        self._check(reports)
        self.saved += [each.id for each in reports]
        return [SaveAnswer(each.saving.run, each.saving.number, 7) for each in reports if each.saving is not None]

    async def progress(self, ids: Sequence[str]) -> dict[str, ProgressRecord]:
        return {}

    async def values(self, ids: Sequence[str]) -> dict[str, SavedValues]:
        return {}

    async def signal(self, job_id: str, signal: JobSignal) -> SignalEffect | None:
        return None

    async def held_jobs(self, *, after: str | None = None, limit: int = 500) -> list[HeldJob]:
        return []

    async def try_versions(self, job_id: str, versions: Collection[str]) -> None: ...

    async def forget(self, ids: Sequence[str]) -> None: ...

    def _check(self, reports: Sequence[Report]) -> None:
        if self.is_down:
            raise StoreUnavailable("down")
        if any(each.id == "odd" for each in reports):
            raise ValueError("odd")


def _saving(job_id: str) -> Report:
    request = SaveRequest(reply="worker.saved.w1", number=1, run=job_id)
    return Report(id=job_id, token=1, kind="saving", saving=request)


def _progress(job_id: str) -> Report:
    return Report(id=job_id, token=1, kind="progress", progress=RunProgress(done=1, updated=_AT))


async def test_a_value_that_cannot_be_saved_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    broker = open_memory_broker(new_url(), BrokerOptions(name="scheduler"))
    await broker.listen(["worker.saved.*"], lambda _, body: heard.extend(one.run for one in decode_answers(body)))
    store = _Picky()
    journals = ReportedJournals(broker, store)
    for job_id in ("a", "b", "odd", "c"):
        assert journals.add(_saving(job_id))

    await journals.save()

    await until(lambda: heard == ["a", "b", "c"])
    assert store.saved == heard
    assert "job odd: dropping a value that the store cannot save" in caplog.text
    assert not journals.is_saving
    await broker.aclose()


async def test_progress_that_cannot_be_kept_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    journals = ReportedJournals(open_memory_broker(new_url(), BrokerOptions(name="scheduler")), _Picky())
    assert journals.add(_progress("odd"))

    await journals.keep_progress()
    await journals.keep_progress()

    assert caplog.text.count("dropping the progress of 1 jobs") == 1


async def test_a_store_that_is_down_leaves_the_reports_to_the_broker() -> None:
    journals = ReportedJournals(open_memory_broker(new_url(), BrokerOptions(name="scheduler")), _Picky(is_down=True))
    for report in (_progress("a"), _saving("a")):
        assert journals.add(report)

    with pytest.raises(StoreUnavailable):
        await journals.keep_progress()
    with pytest.raises(StoreUnavailable):
        await journals.save()
    journals.clear()

    assert not journals.add(Report(id="a", token=1, kind="succeeded"))
    await journals.save()
