"""Races for a unique key."""

import asyncio

from taskmq.contracts.jobs import Submitted
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE
from taskmq.testing.job_store_suite.uniqueness.submissions import unique
from taskmq.testing.runner import case

_WRITERS = 10
_ROUNDS = 4


class UniqueRaces(JobStoreCase):
    """Exactly one job gets the key."""

    @case
    async def test_one_of_many_submissions_of_a_key_wins_and_the_rest_get_its_id(self) -> None:
        drivers = [self.driver() for _ in range(2)]

        for turn in range(_ROUNDS):
            key = unique(name=f"turn {turn}")
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task(drivers[number % 2].try_submit(unique=key, due=HOUR))
                    for number in range(_WRITERS)
                ]
            answers = [call.result() for call in calls]
            (won,) = [answer for answer in answers if answer.is_new]
            assert {answer.id for answer in answers} == {won.id}
            assert sum(answer.is_duplicate for answer in answers) == _WRITERS - 1

    @case
    async def test_one_of_many_jobs_that_replace_each_other_remains(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        key = unique(replaces=True)

        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(drivers[number % 2].try_submit(unique=key, due=HOUR * (number % 3)))
                for number in range(_WRITERS)
            ]

        assert all(call.result().is_new for call in calls)
        states = [await drivers[0].state(call.result().id) for call in calls]
        assert states.count(JobState.CANCELLED) == _WRITERS - 1

    @case
    async def test_a_job_replaced_while_being_dispatched_ends_or_is_asked_to_end(self) -> None:
        driver, other = self.driver(), self.driver()

        for turn in range(_ROUNDS):
            key = unique(name=f"turn {turn}", replaces=True)
            first = await driver.submit(unique=key)
            async with asyncio.TaskGroup() as group:
                dispatching = group.create_task(driver.try_dispatch())
                replacing = group.create_task(other.try_submit(unique=key, due=HOUR))
            answer: Submitted = replacing.result()

            assert answer.is_new
            batch = dispatching.result()
            record = await driver.read(first)
            if batch is None:
                assert record.state is JobState.CANCELLED
            else:
                assert (record.state, record.cancel_requested) == (
                    JobState.DISPATCHED,
                    f"replaced by job {answer.id}",
                )
        assert await driver.lanes(QUEUE) == []
