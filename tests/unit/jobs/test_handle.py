import asyncio
import warnings
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, TypeVar

import pytest

from taskmq.client.progress import JobProgress, progress_of
from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions
from taskmq.contracts.stores import ErrorRecord, ProgressRecord, ResultRecord, WaitingMessage
from taskmq.errors import EncodeError, InvalidOption, JobCancelled, ResultTimeout, TaskFailed, UnsupportedFeature
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration
from taskmq.model.values.return_type import ReturnType
from taskmq.model.values.wire_form import encode_value

T = TypeVar("T")


class _Sessions(Sessions):
    """Sessions without a thread."""

    def __init__(self) -> None:
        self.twins: list[str] = []

    def run_sync(self, call: Coroutine[Any, Any, T], *, instead: str) -> T:
        self.twins.append(instead)
        return asyncio.run(call)


class Records(SentJobs):
    """A state with the records of a dictionary and no others."""

    def __init__(self, *records: ResultRecord) -> None:
        inner = _Sessions()
        super().__init__(inner, plan_of=lambda _: None)
        self.twins = inner.twins
        self.records = {record.job_id: record for record in records}
        self.waited: list[float | None] = []
        self.told: dict[str, JobProgress] = {}
        self.expired: set[str] = set()
        self.waiting: dict[str, WaitingMessage] = {}

    @property
    def sent(self) -> SentJobs:
        return self

    async def submit_sending(self, sending: Sending) -> None:
        raise UnsupportedFeature("this app has no store")

    async def named_sending(self, name: str, *_args: object, **_kwargs: object) -> Sending:
        raise UnsupportedFeature("this app has no store")

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        self.waited.append(timeout)
        return self.records.get(job_id)

    async def find_stored(self, job_id: str) -> None:
        return None

    async def find_progress(self, job_id: str) -> JobProgress | None:
        return self.told.get(job_id)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        return self.records.get(job_id)

    async def has_expired(self, job_id: str) -> bool:
        return job_id in self.expired

    async def cancel_job(
        self,
        job_id: str,
        *,
        reason: str,
        remember: Duration,
        was_sent: bool = False,
        state: JobState | None = None,
    ) -> Cancellation:
        return Cancellation.ENDED

    async def find_waiting(self, job_id: str) -> WaitingMessage | None:
        return self.waiting.get(job_id)

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        return False


def record(state: JobState, **facts: Any) -> ResultRecord:
    return ResultRecord(job_id="7", task="shop.sell", state=state, attempt=3, finished=1, **facts)


def job(backend: Records, returns: Any = int) -> Job[Any]:
    return Job("7", task="shop.sell", jobs=lambda: backend, returns=ReturnType(returns))


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_the_result_has_the_type_that_the_task_returned(content_type: str) -> None:
    backend = Records(record(JobState.SUCCEEDED, value=encode_value((1, 2), content_type), content_type=content_type))

    assert job(backend, tuple[int, int]).result() == (1, 2)
    assert asyncio.run(job(backend, tuple[int, int]).aresult()) == (1, 2)


def test_a_result_that_no_longer_matches_the_type_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match=r"does not match the task's return type"):
        job(Records(record(JobState.SUCCEEDED, value=b'"x"', content_type=JSON))).result()


@pytest.mark.parametrize(("timeout", "seconds"), [(None, None), (0, 0.0), (2, 2.0), ("1m", 60.0)])
def test_waiting_ends_after_the_given_time(timeout: Any, seconds: float | None) -> None:
    backend = Records(record(JobState.SUCCEEDED, value=b"1", content_type=JSON))

    assert job(backend).result(timeout) == 1
    assert backend.waited == [seconds]


@pytest.mark.parametrize("timeout", [-1, "soon"])
def test_an_invalid_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^timeout="):
        job(Records()).result(timeout)


@pytest.mark.parametrize(("timeout", "shown"), [(3, "3 s"), (0, "0 s"), ("90s", "90 s")])
def test_a_job_continues_after_a_wait_timed_out(timeout: Any, shown: str) -> None:
    with pytest.raises(ResultTimeout, match=rf"^job 7 has not ended within {shown}; it goes on$"):
        job(Records()).result(timeout)


def test_a_dead_job_returns_the_error_of_its_task_as_data() -> None:
    error = ErrorRecord(type_name="ValueError", message="no", traceback="Traceback ...")

    with pytest.raises(TaskFailed, match=r"job 7 failed after 3 attempt\(s\): ValueError: no") as caught:
        job(Records(record(JobState.FAILED, error=error))).result()

    failed = caught.value
    assert (failed.job_id, failed.type_name, failed.message, failed.traceback, failed.attempts) == (
        "7",
        "ValueError",
        "no",
        "Traceback ...",
        3,
    )


def test_a_dead_job_without_a_stored_error_is_still_a_failure() -> None:
    with pytest.raises(TaskFailed, match=r"job 7 failed after 3"):
        job(Records(record(JobState.FAILED))).result()


def test_a_cancelled_job_gives_its_reason() -> None:
    error = ErrorRecord(type_name="", message="expired before it started", traceback="")

    with pytest.raises(JobCancelled, match=r"^job 7 was cancelled: expired before it started$"):
        job(Records(record(JobState.CANCELLED, error=error))).result()
    with pytest.raises(JobCancelled, match=r"^job 7 was cancelled: $"):
        job(Records(record(JobState.CANCELLED))).result()


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_the_state_comes_from_the_record(state: JobState) -> None:
    assert job(Records(record(state))).state() is state
    assert asyncio.run(job(Records(record(state))).astate()) is state


def test_a_sent_job_without_a_record_counts_as_queued() -> None:
    assert job(Records()).state() is JobState.QUEUED


def test_an_unknown_id_is_reported_as_unknown() -> None:
    handle: Job[Any] = Job("7", task="", jobs=Records, returns=ReturnType(Any), was_sent=False)

    assert handle.state() is JobState.UNKNOWN


@pytest.mark.parametrize(("attempt", "state"), [(1, JobState.SCHEDULED), (2, JobState.RETRYING)])
def test_a_job_that_waits_in_the_state_is_scheduled_or_retrying(attempt: int, state: JobState) -> None:
    backend = Records()
    body = b'{"task":"shop.sell","attempt":%d}' % attempt
    backend.waiting["7"] = WaitingMessage(
        job_id="7", task="shop.sell", queue="shop", due=9, body=body, content_type=JSON
    )

    assert job(backend).state() is state


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.RETRYING, JobState.FAILED])
def test_a_job_with_progress_is_running(state: JobState) -> None:
    backend = Records()
    told = ProgressRecord(job_id="7", attempt=2, done=3, started=1, updated=1_500, state=state)
    backend.told["7"] = progress_of(told)

    assert job(backend).state() is state


def test_a_blocking_call_names_its_async_twin() -> None:
    backend = Records(record(JobState.SUCCEEDED, value=b"1", content_type=JSON))

    job(backend).result()
    job(backend).state()

    assert backend.twins == ["aresult", "astate"]


def test_an_error_of_the_backend_is_raised_unchanged() -> None:
    class Without(Records):
        async def find_result(self, job_id: str) -> ResultRecord | None:
            raise UnsupportedFeature("results need a state")

    with warnings.catch_warnings(), pytest.raises(UnsupportedFeature):
        job(Without()).state()


def test_a_job_shows_its_task_and_id() -> None:
    assert repr(job(Records())) == "<Job shop.sell 7>"


def test_progress_is_the_latest_update_of_the_task() -> None:
    backend = Records()
    assert job(backend).progress() is None
    told = ProgressRecord(job_id="7", attempt=2, done=3, total=4, note="half", started=1, updated=1_500)
    backend.told["7"] = progress_of(told)

    found = job(backend).progress()

    assert found is not None
    assert (found.done, found.total, found.note, found.attempt, found.fraction) == (3, 4, "half", 2, 0.75)
    assert found.updated.timestamp() == 1.5
    assert asyncio.run(job(backend).aprogress()) == found
    assert backend.twins == ["aprogress", "aprogress"]


@pytest.mark.parametrize(
    ("done", "total", "fraction"), [(1, None, None), (1, 0, None), (1, -1, None), (5, 4, 1.0), (-1, 4, 0.0)]
)
def test_a_fraction_is_between_0_and_1_or_absent(done: float, total: float | None, fraction: float | None) -> None:
    record = ProgressRecord(job_id="7", attempt=1, done=done, total=total, started=1, updated=1)

    assert progress_of(record).fraction == fraction
