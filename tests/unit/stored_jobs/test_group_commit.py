"""Group commits: callers that wait for a commit share the next one."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from taskmq.contracts.jobs import JobStore, NewJob, Submitted
from taskmq.errors import StoreUnavailable
from taskmq.model.states import JobState
from taskmq.stored_jobs.submission.group_commit import GroupCommit


class _SlowStore:
    """A store whose commits wait for `may_commit`.

    Attributes:
        commits: ids of the jobs in each commit.
        refused: ids whose commits fail.
        announced: ids of the jobs that the group commit reported as new.
    """

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.may_commit = asyncio.Event()
        self.refused: set[str] = set()
        self.announced: list[str] = []

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        self.commits.append([job.id for job in jobs])
        await self.may_commit.wait()
        if self.refused.intersection(self.commits[-1]):
            raise StoreUnavailable("gone")
        return [Submitted(job.id, True, True, JobState.QUEUED, 1) for job in jobs]


def _job(job_id: str) -> NewJob:
    return NewJob(id=job_id, task="t", queue="q", body=b"{}")


async def _stage() -> tuple[_SlowStore, GroupCommit]:
    """Return a store, and its group commit after a caller was alone."""
    store = _SlowStore()
    commit = GroupCommit(
        cast("JobStore", store), on_commit=lambda jobs: store.announced.extend(job.id for job in jobs)
    )
    store.may_commit.set()
    await commit.submit(_job("first"))
    store.may_commit.clear()
    store.commits.clear()
    store.announced.clear()
    return store, commit


async def _start(commit: GroupCommit, *ids: str) -> list[asyncio.Task[Submitted]]:
    started = [asyncio.create_task(commit.submit(_job(each))) for each in ids]
    await asyncio.sleep(0)
    return started


async def test_callers_that_wait_for_a_commit_share_the_next_one() -> None:
    store, commit = await _stage()
    started = await _start(commit, "a", "b", "c")
    store.may_commit.set()

    assert [answer.id for answer in await asyncio.gather(*started)] == ["a", "b", "c"]
    await asyncio.gather(*await _start(commit, "d", "e"))
    assert store.commits == [["a"], ["b", "c"], ["d", "e"]]


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_a_lone_caller_that_fails_does_not_hold_up_the_others(ending: str) -> None:
    store, commit = await _stage()
    store.refused = {"a"}
    lone, *others = await _start(commit, "a", "b", "c")
    if ending == "cancelled":
        lone.cancel()
    store.may_commit.set()
    (outcome,) = await asyncio.gather(lone, return_exceptions=True)

    assert isinstance(outcome, asyncio.CancelledError if ending == "cancelled" else StoreUnavailable)
    assert [answer.id for answer in await asyncio.gather(*others)] == ["b", "c"]


async def test_the_job_of_a_cancelled_lone_caller_is_announced() -> None:
    store, commit = await _stage()
    (lone,) = await _start(commit, "a")

    lone.cancel()
    await asyncio.wait([lone])

    assert lone.cancelled()
    assert store.announced == ["a"]
