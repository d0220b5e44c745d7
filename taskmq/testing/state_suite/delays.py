"""Tests of delayed messages in the state: never lost and never taken twice within a lease."""

import asyncio
from collections.abc import Iterable

from taskmq.contracts.stores import State, TakenMessage, WaitingMessage
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 500
_DUE = 1_700_000_000_000


class Delays(StateCase):
    """Every guarantee of `DelayStore`; each test starts with an empty store."""

    @case
    async def test_an_empty_store_returns_no_messages(self) -> None:
        delays = self.state().delays

        assert await delays.next_due() is None
        assert await delays.take(now=_DUE, limit=10, lease=LONG) == []
        assert await delays.count() == 0
        assert await delays.list(limit=10) == []
        assert await delays.find(new("job")) is None
        await delays.mark_done([])
        await delays.give_back([])

    @case
    async def test_a_waiting_message_is_read_back_with_every_field(self) -> None:
        state, other = self.state(), self.state()
        full = WaitingMessage(
            job_id=new("größe ☂ {job}"),
            task="shop.resize",
            queue="images.p.high",
            due=_DUE,
            body=bytes(range(256)) * 4,
            content_type="application/msgpack",
            enqueued=2**53 - 1,
            root="root",
            headers={"x-taskmq-attempt": 3, "x-taskmq-error": "naïve ☂"},
            priority=7,
        )
        plain = waiting("plain", due=_DUE + 1)
        for message in (full, plain):
            await state.delays.put(message)

        assert [await other.delays.find(message.job_id) for message in (full, plain)] == [full, plain]
        assert await other.delays.list(limit=10) == [full, plain]
        assert _messages(await other.delays.take(now=_DUE + 1, limit=10, lease=LONG)) == [full, plain]

    @case
    async def test_a_message_of_a_megabyte_survives(self) -> None:
        delays = self.state().delays
        message = waiting("large", body=bytes(number % 251 for number in range(1_000_000)))

        await delays.put(message)

        assert _messages(await delays.take(now=_DUE, limit=1, lease=LONG)) == [message]

    @case
    async def test_due_messages_are_taken_earliest_first(self) -> None:
        delays = self.state().delays
        for late in (5, 1, 4, 2, 3):
            await delays.put(waiting(f"job {late}", due=_DUE + late))

        assert await delays.take(now=_DUE, limit=10, lease=LONG) == []
        assert await delays.next_due() == _DUE + 1
        first = await delays.take(now=_DUE + 4, limit=2, lease=LONG)
        assert await delays.next_due() == _DUE + 3
        second = await delays.take(now=_DUE + 4, limit=10, lease=LONG)
        assert await delays.next_due() == _DUE + 5

        assert _jobs(first) == ["job 1", "job 2"]
        assert _jobs(second) == ["job 3", "job 4"]

    @case
    async def test_a_message_goes_to_only_one_of_many_takers(self) -> None:
        states = [self.state() for _ in range(5)]
        await _put(states[0], (waiting(f"job {number}") for number in range(_MANY)))

        shares = await asyncio.gather(
            *(states[number % 5].delays.take(now=_DUE, limit=37, lease=LONG) for number in range(20))
        )

        jobs = [job for share in shares for job in _jobs(share)]
        assert sorted(jobs) == sorted(f"job {number}" for number in range(_MANY))
        assert await states[0].delays.count() == _MANY

    @case
    async def test_a_completed_message_is_gone(self) -> None:
        state, other = self.state(), self.state()
        await _put(state, (waiting(f"job {number}") for number in range(4)))
        taken = await state.delays.take(now=_DUE, limit=3, lease=self.short)

        await other.delays.mark_done(taken[:2])
        await other.delays.mark_done(taken[:2])
        assert await state.delays.count() == 2
        await self.advance(self.short * 1.5)

        left = await other.delays.take(now=_DUE, limit=10, lease=LONG)
        assert _jobs(left) == [taken[2].message.job_id, "job 3"]

    @case
    async def test_an_uncompleted_message_is_given_to_others_after_its_lease(self) -> None:
        states = [self.state() for _ in range(5)]
        await _put(states[0], (waiting(f"job {number}") for number in range(10)))
        assert len(await states[0].delays.take(now=_DUE, limit=10, lease=self.short)) == 10
        await states[0].aclose()
        assert await states[1].delays.take(now=_DUE, limit=10, lease=LONG) == []
        assert await states[1].delays.next_due() is None

        await self.advance(self.short * 1.5)

        assert await states[1].delays.next_due() == _DUE
        shares = await asyncio.gather(*(state.delays.take(now=_DUE, limit=10, lease=LONG) for state in states[1:]))
        assert sorted(job for share in shares for job in _jobs(share)) == [f"job {number}" for number in range(10)]

    @case
    async def test_a_late_completion_also_removes_the_message_from_the_next_taker(self) -> None:
        state, other = self.state(), self.state()
        await state.delays.put(waiting("job"))
        early = await state.delays.take(now=_DUE, limit=1, lease=self.short)
        await self.advance(self.short * 1.5)
        late = await other.delays.take(now=_DUE, limit=1, lease=LONG)

        await state.delays.mark_done(early)

        assert _jobs(late) == ["job"]
        assert await other.delays.count() == 0
        await other.delays.mark_done(late)

    @case
    async def test_a_returned_message_can_be_taken_immediately(self) -> None:
        state, other = self.state(), self.state()
        await _put(state, (waiting(f"job {number}", due=_DUE + number) for number in range(3)))
        taken = await state.delays.take(now=_DUE + 9, limit=3, lease=LONG)
        await state.delays.mark_done(taken[:1])

        await state.delays.give_back(taken)

        assert await other.delays.next_due() == _DUE + 1
        assert _jobs(await other.delays.take(now=_DUE + 9, limit=9, lease=LONG)) == ["job 1", "job 2"]

    @case
    async def test_a_second_put_of_a_job_replaces_the_first(self) -> None:
        state, other = self.state(), self.state()
        await state.delays.put(waiting("job", due=_DUE))
        later = waiting("job", due=_DUE + 500, body=b"second")

        await other.delays.put(later)

        assert await state.delays.count() == 1
        assert await state.delays.next_due() == _DUE + 500
        assert await state.delays.take(now=_DUE, limit=10, lease=LONG) == []
        assert _messages(await state.delays.take(now=_DUE + 500, limit=10, lease=LONG)) == [later]

    @case
    async def test_a_put_while_a_message_is_taken_keeps_a_new_message(self) -> None:
        state, other = self.state(), self.state()
        for replacement in (waiting("same"), waiting("same", due=_DUE + 1)):
            await state.delays.put(waiting("same"))
            taken = await state.delays.take(now=_DUE, limit=10, lease=LONG)

            await other.delays.put(replacement)
            await state.delays.mark_done(taken)

            assert await other.delays.find("same") == replacement
            again = await other.delays.take(now=_DUE + 1, limit=10, lease=LONG)
            assert _messages(again) == [replacement]
            await state.delays.give_back(taken)
            assert await other.delays.take(now=_DUE + 1, limit=10, lease=LONG) == []
            await state.delays.mark_done(again)
            assert await state.delays.count() == 0

    @case
    async def test_many_concurrent_puts_all_count(self) -> None:
        states = [self.state() for _ in range(4)]

        await asyncio.gather(
            *(
                states[number % 4].delays.put(waiting(f"job {number}", due=_DUE + number % 7))
                for number in range(_MANY)
            )
        )

        assert await states[0].delays.count() == _MANY
        taken = _messages(await states[0].delays.take(now=_DUE + 9, limit=_MANY + 1, lease=LONG))
        assert len(taken) == _MANY
        assert [message.due for message in taken] == sorted(message.due for message in taken)

    @case
    async def test_messages_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        await state.delays.put(waiting("job"))

        await state.aclose()

        assert _jobs(await other.delays.take(now=_DUE, limit=10, lease=LONG)) == ["job"]

    @case
    async def test_cancelled_puts_and_takes_lose_nothing(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            await cancel_at(point, state.delays.put(waiting("job")), within=self.patience)
            await state.delays.put(waiting("job"))
            await cancel_at(point, state.delays.take(now=_DUE, limit=10, lease=self.short / 10), within=self.patience)
            # The server may process the cancelled take later, and so lease the message after the caller gave up.
            async with asyncio.timeout(self.patience):
                while not (taken := await state.delays.take(now=_DUE, limit=10, lease=LONG)):
                    await self.advance(self.short / 10)
            assert _jobs(taken) == ["job"], f"cancelled {point}"
            await cancel_at(point, state.delays.mark_done(taken), within=self.patience)
            await state.delays.mark_done(taken)
            assert await state.delays.count() == 0

    @case
    async def test_a_listener_is_notified_of_an_earlier_message(self) -> None:
        state, other = self.state(), self.state()
        heard = asyncio.Event()
        stop = state.delays.listen(heard.set)
        # Prove that the store listens: its first call may be spurious.
        await self._until_heard(other, heard)

        for due in (_DUE - 1, _DUE - 2, _DUE - 3):
            heard.clear()
            await other.delays.put(waiting(new("job"), due=due))
            async with asyncio.timeout(self.patience):
                await heard.wait()
            assert await state.delays.next_due() == due
        heard.clear()
        await other.delays.put(waiting("moved", due=_DUE + 9))
        assert await other.delays.swap(waiting("moved", due=_DUE + 9), waiting("moved", due=_DUE - 9))
        async with asyncio.timeout(self.patience):
            await heard.wait()
        stop()
        stop()

    @case
    async def test_a_listener_is_notified_of_the_first_untaken_message(self) -> None:
        state, other = self.state(), self.state()
        heard = asyncio.Event()
        state.delays.listen(heard.set)
        await self._until_heard(other, heard)

        for due in (_DUE - 9, _DUE - 8):
            heard.clear()
            await other.delays.put(waiting(new("job"), due=due))
            async with asyncio.timeout(self.patience):
                await heard.wait()
            if due < _DUE - 8:
                assert len(await other.delays.take(now=due, limit=100, lease=LONG)) == 1
        assert await state.delays.next_due() == _DUE - 8

    async def _until_heard(self, state: State, heard: asyncio.Event) -> None:
        for step in range(1_000):
            await state.delays.put(waiting(new("knock"), due=_DUE + 1_000_000 - step))
            try:
                async with asyncio.timeout(0.05):
                    await heard.wait()
            except TimeoutError:
                continue
            return
        raise AssertionError("the listener was not called for the earliest message")

    @case
    async def test_a_removed_listener_is_not_notified(self) -> None:
        state, other = self.state(), self.state()
        quiet, heard = asyncio.Event(), asyncio.Event()
        stop = state.delays.listen(quiet.set)
        state.delays.listen(heard.set)
        await self._until_heard(other, heard)
        stop()
        for event in (quiet, heard):
            event.clear()

        await other.delays.put(waiting("job"))

        async with asyncio.timeout(self.patience):
            await heard.wait()
        assert not quiet.is_set()

    @case
    async def test_messages_are_listed_by_task_and_queue_up_to_a_limit(self) -> None:
        state, other = self.state(), self.state()
        tasks, queues = ("a", "b"), ("q", "q.p.low", "other")
        for number in range(60):
            message = waiting(
                f"job {number}", task=tasks[number % 2], queue=queues[number % 3], due=_DUE + 60 - number
            )
            await state.delays.put(message)
        everything = await other.delays.list(limit=1_000)

        assert [message.job_id for message in everything] == [f"job {number}" for number in reversed(range(60))]
        assert await other.delays.list(limit=7) == everything[:7]
        assert await other.delays.list(limit=0) == []
        of_a = [message for message in everything if message.task == "a"]
        assert await other.delays.list(limit=1_000, task="a") == of_a
        in_q = [message for message in everything if message.queue in queues[:2]]
        assert await other.delays.list(limit=5, queues=queues[:2]) == in_q[:5]
        both = [message for message in of_a if message.queue == "other"]
        assert await other.delays.list(limit=1_000, task="a", queues=["other"]) == both
        assert await other.delays.list(limit=1_000, queues=[]) == []

    @case
    async def test_a_taken_message_is_still_counted_found_and_listed(self) -> None:
        state, other = self.state(), self.state()
        await _put(state, (waiting(f"job {number}", due=_DUE + number) for number in range(3)))
        taken = await state.delays.take(now=_DUE + 1, limit=10, lease=LONG)

        assert await other.delays.count() == 3
        assert await other.delays.find("job 0") == taken[0].message
        assert [message.job_id for message in await other.delays.list(limit=10)] == ["job 0", "job 1", "job 2"]

    @case
    async def test_a_cancelled_message_is_never_delivered(self) -> None:
        state, other = self.state(), self.state()
        await _put(state, (waiting(f"job {number}") for number in range(2)))

        assert await other.delays.cancel("job 0")
        assert not await state.delays.cancel("job 0")
        assert not await state.delays.cancel(new("job"))

        assert await state.delays.find("job 0") is None
        assert _jobs(await state.delays.take(now=_DUE, limit=10, lease=LONG)) == ["job 1"]

    @case
    async def test_a_changed_message_is_delivered_once_at_its_new_time(self) -> None:
        state, other = self.state(), self.state()
        await _put(state, (waiting(f"job {number}") for number in range(2)))
        later = waiting("job 0", due=_DUE + 70, body=b"changed")

        assert await other.delays.swap(waiting("job 0"), later)

        assert _jobs(await state.delays.take(now=_DUE + 69, limit=10, lease=LONG)) == ["job 1"]
        assert await state.delays.next_due() == _DUE + 70
        assert _messages(await state.delays.take(now=_DUE + 70, limit=10, lease=LONG)) == [later]

    @case
    async def test_a_message_changed_since_it_was_found_is_not_changed(self) -> None:
        state, other = self.state(), self.state()
        await state.delays.put(waiting("job", body=b"second"))

        for found in (waiting("job"), waiting("job", body=b"second", due=_DUE + 1), waiting(new("job"))):
            assert not await other.delays.swap(found, waiting(found.job_id, due=_DUE + 70))

        assert await state.delays.list(limit=10) == [waiting("job", body=b"second")]

    @case
    async def test_a_taken_message_is_neither_cancelled_nor_changed(self) -> None:
        state, other = self.state(), self.state()
        later = waiting("job", due=_DUE + 70)
        await state.delays.put(waiting("job"))
        taken = await state.delays.take(now=_DUE, limit=10, lease=self.short)

        assert not await other.delays.cancel("job")
        assert not await other.delays.swap(waiting("job"), later)
        await self.advance(self.short * 1.5)

        # No known relay is about to publish it.
        assert await other.delays.swap(waiting("job"), later)
        await state.delays.mark_done(taken)
        assert await other.delays.find("job") == later
        assert await other.delays.cancel("job")

    @case
    async def test_a_concurrent_cancel_and_take_have_one_winner(self) -> None:
        state, other = self.state(), self.state()

        for number in range(30):
            job = f"job {number}"
            await state.delays.put(waiting(job))
            taken, cancelled = await asyncio.gather(
                state.delays.take(now=_DUE, limit=1, lease=LONG), other.delays.cancel(job)
            )
            assert (_jobs(taken) == [job]) != cancelled
            await state.delays.mark_done(taken)
        assert await state.delays.count() == 0


def waiting(
    job_id: str, *, due: int = _DUE, task: str = "suite.task", queue: str = "suite", body: bytes = b"{}"
) -> WaitingMessage:
    """Return a message to store."""
    return WaitingMessage(job_id=job_id, task=task, queue=queue, due=due, body=body, content_type="application/json")


async def _put(state: State, messages: Iterable[WaitingMessage]) -> None:
    for message in messages:
        await state.delays.put(message)


def _messages(taken: Iterable[TakenMessage]) -> list[WaitingMessage]:
    return [one.message for one in taken]


def _jobs(taken: Iterable[TakenMessage]) -> list[str]:
    return [one.message.job_id for one in taken]
