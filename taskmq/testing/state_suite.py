"""The conformance suite for states: an adapter is done when its subclass of `StateSuite` passes.

    class TestMine(StateSuite):
        @pytest.fixture(autouse=True)
        def _server(self, my_server):
            self.url = my_server.url

        def open_state(self, name=""):
            return my_package.open_state(self.url, BrokerOptions(name=name))

One test calls `open_state` several times: that is several processes' worth of states on one server. Time
passes by `advance`, which really waits; override it where the adapter's clock can be moved. For telling
failures call `pytest.register_assert_rewrite("taskmq.testing.state_suite")` in conftest.py.
"""

import asyncio
import uuid

from taskmq.errors import StateUnavailable
from taskmq.states import JobState
from taskmq.stores import ErrorRecord, OccurrenceStore, ResultRecord, State
from taskmq.testing.runner import CancelPoint, Suite, cancelled_at, case

__all__ = ["StateSuite"]

_MANY = 500
_CLAIMERS = 50
_LONG = 3_600.0


class StateSuite(Suite):
    """Every guarantee of `taskmq.stores`.

    Attributes:
        short: seconds that pass before something expires in a test; a server with coarse time needs more.
    """

    short: float = 0.4

    # The adapter's part -----------------------------------------------------------------------------------

    def open_state(self, name: str = "") -> State:
        """A new state on the test's server, not yet connected. Called inside the running loop."""
        raise NotImplementedError

    async def advance(self, seconds: float) -> None:
        """Let this much time pass for the store."""
        await asyncio.sleep(seconds)

    # Results ----------------------------------------------------------------------------------------------

    @case
    async def test_a_job_without_a_record_gives_none(self) -> None:
        state = self.state()

        assert await state.results.get(_new("job")) is None

    @case
    async def test_a_record_comes_back_with_every_field(self) -> None:
        state = self.state()
        for record in (
            _succeeded(_new("job")),
            ResultRecord(
                job_id=_new("größe ☂ job"),
                task="shop.resize",
                state=JobState.DEAD,
                attempt=5,
                content_type="application/msgpack",
                value=bytes(range(256)),
                error=ErrorRecord(type_name="ValueError", message="naïve ☂\n'\"", traceback="line\n" * 500),
                started=1_700_000_000_001,
                finished=1_700_000_000_002,
                worker="web-3:4711",
            ),
            ResultRecord(
                job_id=_new("job"),
                task="t",
                state=JobState.CANCELLED,
                attempt=1,
                error=ErrorRecord(type_name="", message="expired", traceback=""),
                finished=2**53 - 1,
            ),
        ):
            await state.results.put(record, ttl=_LONG)
            assert await state.results.get(record.job_id) == record
            assert await state.results.wait(record.job_id, timeout=self.patience) == record

    @case
    async def test_a_value_of_a_megabyte_survives(self) -> None:
        state = self.state()
        record = _succeeded(_new("job"), value=bytes(number % 251 for number in range(1_000_000)))

        await state.results.put(record, ttl=_LONG)

        assert await state.results.get(record.job_id) == record

    @case
    async def test_several_states_see_the_same_records(self) -> None:
        writer, reader = self.state(), self.state()
        record = _succeeded(_new("job"))

        await writer.results.put(record, ttl=_LONG)

        assert await reader.results.get(record.job_id) == record
        assert await reader.results.wait(record.job_id, timeout=0) == record

    @case
    async def test_a_record_survives_the_closing_of_its_writer(self) -> None:
        writer, reader = self.state(), self.state()
        record = _succeeded(_new("job"))
        assert await reader.results.get(record.job_id) is None
        await writer.results.put(record, ttl=_LONG)

        await writer.aclose()

        assert await reader.results.get(record.job_id) == record

    @case
    async def test_whoever_waits_before_the_record_is_there_gets_it(self) -> None:
        writer, reader = self.state(), self.state()
        record = _succeeded(_new("job"))
        waiting = [
            asyncio.create_task(state.results.wait(record.job_id, timeout=timeout))
            for state in (writer, reader)
            for timeout in (None, self.patience)
        ]
        await asyncio.sleep(0.05)

        await writer.results.put(record, ttl=_LONG)

        async with asyncio.timeout(self.patience):
            assert await asyncio.gather(*waiting) == [record] * 4

    @case
    async def test_a_record_put_at_any_instant_of_a_wait_is_not_missed(self) -> None:
        writer, reader = self.state(), self.state()

        for point in CancelPoint.TIMED:
            record = _succeeded(_new("job"))
            waiting = asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience))
            await point.come()
            await writer.results.put(record, ttl=_LONG)
            assert await waiting == record, f"put {point}"

    @case
    async def test_many_can_wait_at_the_same_time_each_for_its_own(self) -> None:
        writer, reader = self.state(), self.state()
        records = [_succeeded(_new("job"), value=str(number).encode()) for number in range(_MANY)]
        waiting = [
            asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience * 2)) for record in records
        ]
        await asyncio.sleep(0.05)

        await asyncio.gather(*(writer.results.put(record, ttl=_LONG) for record in reversed(records)))

        assert await asyncio.gather(*waiting) == records

    @case
    async def test_many_can_wait_for_the_same_record(self) -> None:
        writer, reader = self.state(), self.state()
        record = _succeeded(_new("job"))
        waiting = [
            asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience * 2)) for _ in range(_MANY)
        ]
        await asyncio.sleep(0.05)

        await writer.results.put(record, ttl=_LONG)

        assert await asyncio.gather(*waiting) == [record] * _MANY

    @case
    async def test_a_wait_in_vain_ends_with_none_after_its_timeout(self) -> None:
        state = self.state()
        loop = asyncio.get_running_loop()

        for timeout in (0.0, 0.15):
            start = loop.time()
            assert await state.results.wait(_new("job"), timeout=timeout) is None
            assert timeout - 0.02 <= loop.time() - start <= timeout + self.patience / 2

    @case
    async def test_waits_may_be_cancelled_and_harm_no_other(self) -> None:
        state = self.state()
        record = _succeeded(_new("job"))
        waiting = asyncio.create_task(state.results.wait(record.job_id, timeout=self.patience))

        for point in CancelPoint.TIMED:
            call = state.results.wait(record.job_id, timeout=None)
            assert await cancelled_at(point, call, within=self.patience) is None

        await state.results.put(record, ttl=_LONG)
        assert await waiting == record

    @case
    async def test_puts_and_gets_may_be_cancelled_and_the_state_goes_on(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            record = _succeeded(_new("job"))
            await cancelled_at(point, state.results.put(record, ttl=_LONG), within=self.patience)
            await cancelled_at(point, state.results.get(record.job_id), within=self.patience)
            await state.results.put(record, ttl=_LONG)
            assert await state.results.get(record.job_id) == record

    @case
    async def test_a_success_is_never_overwritten(self) -> None:
        state, other = self.state(), self.state()
        success = _succeeded(_new("job"))
        await state.results.put(success, ttl=_LONG)

        for later in (
            _dead(success.job_id),
            _cancelled(success.job_id),
            _succeeded(success.job_id, value=b"2", attempt=2),
        ):
            await other.results.put(later, ttl=_LONG)
            assert await state.results.get(success.job_id) == success
            assert await other.results.wait(success.job_id, timeout=0) == success

    @case
    async def test_any_other_record_is_overwritten(self) -> None:
        state, other = self.state(), self.state()
        job_id = _new("job")
        await state.results.put(_cancelled(job_id), ttl=_LONG)

        for later in (_dead(job_id), _cancelled(job_id), _dead(job_id), _succeeded(job_id)):
            await other.results.put(later, ttl=_LONG)
            assert await state.results.get(job_id) == later

    @case
    async def test_of_many_successes_at_the_same_time_one_counts(self) -> None:
        states = [self.state() for _ in range(5)]
        job_id = _new("job")

        await asyncio.gather(
            *(
                state.results.put(_succeeded(job_id, value=str(number).encode(), attempt=number), ttl=_LONG)
                for number, state in enumerate(states * 4, start=1)
            )
        )

        seen = [await state.results.get(job_id) for state in states]
        assert seen[0] is not None
        assert seen == [seen[0]] * len(states)

    @case
    async def test_the_same_record_may_be_put_twice(self) -> None:
        state, other = self.state(), self.state()

        for record in (_succeeded(_new("job")), _dead(_new("job"))):
            await state.results.put(record, ttl=_LONG)
            await other.results.put(record, ttl=_LONG)
            assert await state.results.get(record.job_id) == record

    @case
    async def test_a_record_is_gone_after_its_time(self) -> None:
        state, other = self.state(), self.state()
        gone, kept = _succeeded(_new("job")), _succeeded(_new("job"))
        await state.results.put(gone, ttl=self.short)
        await state.results.put(kept, ttl=_LONG)

        await self.advance(self.short * 1.5)

        for each in (state, other):
            assert await each.results.get(gone.job_id) is None
            assert await each.results.wait(gone.job_id, timeout=0) is None
            assert await each.results.get(kept.job_id) == kept

    @case
    async def test_after_its_time_a_success_makes_room_for_another_record(self) -> None:
        state = self.state()
        job_id = _new("job")
        await state.results.put(_succeeded(job_id), ttl=self.short)

        await self.advance(self.short * 1.5)

        await state.results.put(_dead(job_id), ttl=_LONG)
        assert await state.results.get(job_id) == _dead(job_id)

    # Occurrences ------------------------------------------------------------------------------------------

    @case
    async def test_an_occurrence_is_claimed_once(self) -> None:
        state, other = self.state(), self.state()
        occurrence = _new("nightly@2026-11-21T03:00 ☂")

        assert await self._claims(state.occurrences, occurrence)
        assert not await self._claims(state.occurrences, occurrence)
        assert not await self._claims(other.occurrences, occurrence)
        assert await self._claims(other.occurrences, _new("another"))

    @case
    async def test_one_of_many_claimers_at_the_same_time_gets_it(self) -> None:
        states = [self.state() for _ in range(5)]

        for _ in range(3):
            occurrence = _new("occurrence")
            claims = await asyncio.gather(
                *(
                    states[number % 5].occurrences.claim(occurrence, owner=f"beat {number}", lease=_LONG, ttl=_LONG)
                    for number in range(_CLAIMERS)
                )
            )
            assert sorted(claims) == [False] * (_CLAIMERS - 1) + [True]

    @case
    async def test_a_claim_whose_owner_went_silent_goes_to_one_other(self) -> None:
        states = [self.state() for _ in range(5)]
        occurrence = _new("occurrence")
        assert await self._claims(states[0].occurrences, occurrence, lease=self.short)
        assert not await self._claims(states[1].occurrences, occurrence, lease=self.short)

        await self.advance(self.short * 1.5)

        claims = await asyncio.gather(
            *(self._claims(states[number % 5].occurrences, occurrence) for number in range(_CLAIMERS))
        )
        assert sorted(claims) == [False] * (_CLAIMERS - 1) + [True]

    @case
    async def test_a_completed_occurrence_is_claimed_by_nobody(self) -> None:
        state, other = self.state(), self.state()
        occurrence = _new("occurrence")
        await self._claims(state.occurrences, occurrence, lease=self.short)

        await state.occurrences.complete(occurrence, ttl=_LONG)
        await self.advance(self.short * 1.5)

        assert not await self._claims(state.occurrences, occurrence)
        assert not await self._claims(other.occurrences, occurrence)

    @case
    async def test_an_occurrence_completed_by_a_late_owner_is_claimed_by_nobody(self) -> None:
        state, other = self.state(), self.state()
        occurrence = _new("occurrence")
        await self._claims(state.occurrences, occurrence, lease=self.short)
        await self.advance(self.short * 1.5)

        await state.occurrences.complete(occurrence, ttl=_LONG)

        assert not await self._claims(other.occurrences, occurrence)

    @case
    async def test_an_occurrence_may_be_completed_without_a_claim_and_twice(self) -> None:
        state, other = self.state(), self.state()
        occurrence = _new("occurrence")

        await state.occurrences.complete(occurrence, ttl=_LONG)
        await other.occurrences.complete(occurrence, ttl=_LONG)

        assert not await self._claims(state.occurrences, occurrence)

    @case
    async def test_claims_and_completions_are_forgotten_after_their_time(self) -> None:
        state = self.state()
        claimed, completed = _new("claimed"), _new("completed")
        assert await state.occurrences.claim(claimed, owner="beat", lease=_LONG, ttl=self.short)
        assert await self._claims(state.occurrences, completed)
        await state.occurrences.complete(completed, ttl=self.short)

        await self.advance(self.short * 1.5)

        assert await self._claims(state.occurrences, claimed)
        assert await self._claims(state.occurrences, completed)

    # Ending -----------------------------------------------------------------------------------------------

    @case
    async def test_a_state_may_be_closed_unused_twice_and_at_the_same_time(self) -> None:
        unused, used = self.state(), self.state()
        await used.results.get(_new("job"))
        assert "://" in used.address

        for state in (unused, used):
            await asyncio.gather(state.aclose(), state.aclose())
            await state.aclose()

    @case
    async def test_closing_ends_the_waits(self) -> None:
        state = self.state()
        waits = [asyncio.create_task(state.results.wait(_new("job"), timeout=None)) for _ in range(3)]
        await asyncio.sleep(0.05)

        await state.aclose()

        done, pending = await asyncio.wait(waits, timeout=self.patience)
        assert not pending
        for wait in done:
            error = wait.exception()
            assert isinstance(error, StateUnavailable) if error else wait.result() is None

    @case
    async def test_a_closed_state_says_so(self) -> None:
        state = self.state()
        await state.results.get(_new("job"))
        await state.aclose()

        for call in (
            state.results.put(_succeeded(_new("job")), ttl=_LONG),
            state.results.get(_new("job")),
            state.results.wait(_new("job"), timeout=self.patience),
            self._claims(state.occurrences, _new("occurrence")),
            state.occurrences.complete(_new("occurrence"), ttl=_LONG),
        ):
            try:
                async with asyncio.timeout(self.patience):
                    await call
            except StateUnavailable:
                continue
            raise AssertionError(f"{call!r} of a closed state did not raise StateUnavailable")

    # The tests' part --------------------------------------------------------------------------------------

    def state(self, name: str = "") -> State:
        """A state that is closed at the end of the test."""
        state = self.open_state(name)
        self.opened.push_async_callback(state.aclose)
        return state

    async def _claims(self, store: OccurrenceStore, occurrence: str, *, lease: float = _LONG) -> bool:
        return await store.claim(occurrence, owner=_new("beat"), lease=lease, ttl=_LONG)


def _new(text: str) -> str:
    return f"{text} {uuid.uuid4()}"


def _succeeded(job_id: str, *, value: bytes = b'"done"', attempt: int = 1) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.SUCCEEDED,
        attempt=attempt,
        content_type="application/json",
        value=value,
        started=1_700_000_000_000,
        finished=1_700_000_000_500,
    )


def _dead(job_id: str) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.DEAD,
        attempt=5,
        error=ErrorRecord(type_name="ValueError", message="no", traceback="here"),
        finished=1_700_000_000_900,
    )


def _cancelled(job_id: str) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.CANCELLED,
        attempt=1,
        error=ErrorRecord(type_name="Ignore", message="ignored by the task", traceback=""),
        finished=1_700_000_000_800,
    )
