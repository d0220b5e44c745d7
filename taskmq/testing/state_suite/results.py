"""Tests of results: storage, precedence, expiry, and waits."""

import asyncio
import itertools

from msgspec import structs

from taskmq.contracts.stores import BlobReference, ErrorRecord, ResultRecord
from taskmq.errors import ResultExpired
from taskmq.model.states import JobState
from taskmq.testing.runner import CancelPoint, cancel_at, case, raises
from taskmq.testing.state_suite.case import LONG, StateCase, new
from taskmq.testing.state_suite.records import cancelled_record, failure_record, success_record

_MANY = 500


class Results(StateCase):
    """Every guarantee of `ResultStore`."""

    @case
    async def test_a_job_without_a_record_returns_none(self) -> None:
        state = self.state()

        assert await state.results.get(new("job")) is None

    @case
    async def test_a_record_is_read_back_with_every_field(self) -> None:
        state = self.state()
        for record in (
            success_record(new("job")),
            ResultRecord(
                job_id=new("größe ☂ job"),
                task="shop.resize",
                state=JobState.FAILED,
                attempt=5,
                content_type="application/msgpack",
                value=bytes(range(256)),
                error=ErrorRecord(type_name="ValueError", message="naïve ☂\n'\"", traceback="line\n" * 500),
                started=1_700_000_000_001,
                finished=1_700_000_000_002,
                worker="web-3:4711",
                blob=BlobReference(name="2026/x", size=2**40, sha256="0" * 64),
            ),
            ResultRecord(
                job_id=new("job"),
                task="t",
                state=JobState.CANCELLED,
                attempt=1,
                error=ErrorRecord(type_name="", message="expired", traceback=""),
                finished=2**53 - 1,
            ),
        ):
            await state.results.put(record, ttl=LONG)
            assert await state.results.get(record.job_id) == record
            assert await state.results.wait(record.job_id, timeout=self.patience) == record

    @case
    async def test_a_value_of_a_megabyte_survives(self) -> None:
        state = self.state()
        record = success_record(new("job"), value=bytes(number % 251 for number in range(1_000_000)))

        await state.results.put(record, ttl=LONG)

        assert await state.results.get(record.job_id) == record

    @case
    async def test_several_states_read_the_same_records(self) -> None:
        writer, reader = self.state(), self.state()
        record = success_record(new("job"))

        await writer.results.put(record, ttl=LONG)

        assert await reader.results.get(record.job_id) == record
        assert await reader.results.wait(record.job_id, timeout=0) == record

    @case
    async def test_a_record_survives_its_writer_closing(self) -> None:
        writer, reader = self.state(), self.state()
        record = success_record(new("job"))
        assert await reader.results.get(record.job_id) is None
        await writer.results.put(record, ttl=LONG)

        await writer.aclose()

        assert await reader.results.get(record.job_id) == record

    @case
    async def test_a_wait_started_before_the_record_exists_returns_it(self) -> None:
        writer, reader = self.state(), self.state()
        record = success_record(new("job"))
        waiting = [
            asyncio.create_task(state.results.wait(record.job_id, timeout=timeout))
            for state in (writer, reader)
            for timeout in (None, self.patience)
        ]
        await asyncio.sleep(0.05)

        await writer.results.put(record, ttl=LONG)

        async with asyncio.timeout(self.patience):
            assert await asyncio.gather(*waiting) == [record] * 4

    @case
    async def test_a_record_put_at_any_moment_of_a_wait_is_not_missed(self) -> None:
        writer, reader = self.state(), self.state()

        for point in CancelPoint.TIMED:
            record = success_record(new("job"))
            waiting = asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience))
            await point.reach()
            await writer.results.put(record, ttl=LONG)
            assert await waiting == record, f"put {point}"

    @case
    async def test_many_can_wait_concurrently_each_for_its_own_record(self) -> None:
        writer, reader = self.state(), self.state()
        records = [success_record(new("job"), value=str(number).encode()) for number in range(_MANY)]
        waiting = [
            asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience * 2)) for record in records
        ]
        await asyncio.sleep(0.05)

        await asyncio.gather(*(writer.results.put(record, ttl=LONG) for record in reversed(records)))

        assert await asyncio.gather(*waiting) == records

    @case
    async def test_many_can_wait_for_the_same_record(self) -> None:
        writer, reader = self.state(), self.state()
        record = success_record(new("job"))
        waiting = [
            asyncio.create_task(reader.results.wait(record.job_id, timeout=self.patience * 2)) for _ in range(_MANY)
        ]
        await asyncio.sleep(0.05)

        await writer.results.put(record, ttl=LONG)

        assert await asyncio.gather(*waiting) == [record] * _MANY

    @case
    async def test_a_wait_that_times_out_returns_none(self) -> None:
        state = self.state()
        loop = asyncio.get_running_loop()

        for timeout in (0.0, 0.15):
            start = loop.time()
            assert await state.results.wait(new("job"), timeout=timeout) is None
            assert timeout - 0.02 <= loop.time() - start <= timeout + 5

    @case
    async def test_cancelled_waits_do_not_affect_others(self) -> None:
        state = self.state()
        record = success_record(new("job"))
        waiting = asyncio.create_task(state.results.wait(record.job_id, timeout=self.patience))

        for point in CancelPoint.TIMED:
            call = state.results.wait(record.job_id, timeout=None)
            assert await cancel_at(point, call, within=self.patience) is None

        await state.results.put(record, ttl=LONG)
        assert await waiting == record

    @case
    async def test_the_state_keeps_working_after_cancelled_puts_and_gets(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            record = success_record(new("job"))
            await cancel_at(point, state.results.put(record, ttl=LONG), within=self.patience)
            await cancel_at(point, state.results.get(record.job_id), within=self.patience)
            await state.results.put(record, ttl=LONG)
            assert await state.results.get(record.job_id) == record

    @case
    async def test_a_success_is_never_overwritten(self) -> None:
        state, other = self.state(), self.state()
        success = success_record(new("job"))
        await state.results.put(success, ttl=LONG)

        for later in (
            failure_record(success.job_id),
            cancelled_record(success.job_id),
            success_record(success.job_id, value=b"2", attempt=2),
        ):
            await other.results.put(later, ttl=LONG)
            assert await state.results.get(success.job_id) == success
            assert await other.results.wait(success.job_id, timeout=0) == success

    @case
    async def test_the_table_of_states_decides_which_record_replaces_another(self) -> None:
        state, other = self.state(), self.state()
        for first, second in itertools.product((success_record, failure_record, cancelled_record), repeat=2):
            before = first(new("job"))
            after = structs.replace(second(before.job_id), finished=1_700_000_001_000)
            await state.results.put(before, ttl=LONG)

            await other.results.put(after, ttl=LONG)

            assert await state.results.get(before.job_id) == (before if before.state.is_sticky else after)

    @case
    async def test_only_one_of_many_concurrent_successes_counts(self) -> None:
        states = [self.state() for _ in range(5)]
        job_id = new("job")

        await asyncio.gather(
            *(
                state.results.put(success_record(job_id, value=str(number).encode(), attempt=number), ttl=LONG)
                for number, state in enumerate(states * 4, start=1)
            )
        )

        seen = [await state.results.get(job_id) for state in states]
        assert seen[0] is not None
        assert seen == [seen[0]] * len(states)

    @case
    async def test_the_same_record_can_be_put_twice(self) -> None:
        state, other = self.state(), self.state()

        for record in (success_record(new("job")), failure_record(new("job"))):
            await state.results.put(record, ttl=LONG)
            await other.results.put(record, ttl=LONG)
            assert await state.results.get(record.job_id) == record

    @case
    async def test_a_record_expires(self) -> None:
        state, other = self.state(), self.state()
        gone, kept = success_record(new("job")), success_record(new("job"))
        await state.results.put(gone, ttl=self.short)
        await state.results.put(kept, ttl=LONG)

        await self.advance(self.short * 1.5)

        for each in (state, other):
            assert await each.results.get(gone.job_id) is None
            with raises(ResultExpired):
                await each.results.wait(gone.job_id, timeout=0)
            assert await each.results.has_expired(gone.job_id)
            assert await each.results.get(kept.job_id) == kept
            assert await each.results.wait(kept.job_id, timeout=0) == kept
            assert not await each.results.has_expired(kept.job_id)

    @case
    async def test_an_expired_success_can_be_replaced(self) -> None:
        state = self.state()
        job_id = new("job")
        await state.results.put(success_record(job_id), ttl=self.short)

        await self.advance(self.short * 1.5)

        await state.results.put(failure_record(job_id), ttl=LONG)
        assert await state.results.get(job_id) == failure_record(job_id)
        assert await state.results.wait(job_id, timeout=0) == failure_record(job_id)
        assert not await state.results.has_expired(job_id)

    @case
    async def test_a_record_that_never_existed_has_not_expired(self) -> None:
        state = self.state()

        assert not await state.results.has_expired(new("job"))

    @case
    async def test_the_trace_of_an_expired_record_survives_other_puts(self) -> None:
        state, other = self.state(), self.state()
        job_id = new("job")
        await state.results.put(success_record(job_id), ttl=self.short)

        await self.advance(self.short * 1.2)
        for _ in range(3):
            await other.results.put(success_record(new("job")), ttl=LONG)

        assert await state.results.has_expired(job_id)
        assert await state.results.get(job_id) is None
