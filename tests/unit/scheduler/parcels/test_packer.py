from collections.abc import Sequence
from typing import Any

import pytest

from taskmq.contracts.jobs import DispatchedJob, JobClaim
from taskmq.scheduler.parcels import Packer, ShortTasks


def _jobs(count: int, **fields: Any) -> list[DispatchedJob]:
    known: dict[str, Any] = {
        "key": None,
        "tenant": "",
        "task": "t",
        "queue": "work",
        "priority": 4,
        "attempt": 1,
        "token": 1,
        "expires": None,
        "body": b"{}",
        "due": 1,
    }
    return [DispatchedJob(id=f"{fields}{number}", **{**known, **fields}) for number in range(count)]


def _packer(*, processes: int = 1, plain: Sequence[str] = ("t", "u")) -> Packer:
    short = ShortTasks()
    for task in ("t", "u", "waits"):
        for _ in range(100):
            short.record_run(task, 1)
    count = {"old": 0}.get
    return Packer(
        short, count_unpacking=lambda queue: count(queue, processes), is_plain=lambda task: task in (*plain, "long")
    )


def _sizes(packer: Packer, jobs: Sequence[DispatchedJob], **options: Any) -> list[int]:
    return [len(each) for each in packer.pack(jobs, now=0, **options)]


@pytest.mark.parametrize(
    ("jobs", "processes", "sizes"),
    [
        (500, 1, [25] * 20),
        (500, 10, [12] * 41 + [8]),
        (40, 1, [10] * 4),
        (8, 1, [2] * 4),
        (7, 1, [1] * 7),
        (15, 2, [1] * 15),
        (500, 0, [1] * 500),
    ],
)
def test_each_process_gets_four_parcels_of_up_to_25_jobs(jobs: int, processes: int, sizes: list[int]) -> None:
    assert _sizes(_packer(processes=processes), _jobs(jobs)) == sizes


def test_few_jobs_travel_alone() -> None:
    assert _sizes(_packer(), _jobs(1)) == [1]
    assert _sizes(_packer(), []) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": 2},
        {"outages": 1},
        {"crashes": 0},
        {"due": None},
        {"node": "gpu-1"},
        {"body": b'{"order_key":"a"}'},
        {"body": b'{"run":{"once":true}}'},
        {"start": 1.0},
        {"claims": (JobClaim("key"),)},
        {"task": "long"},
        {"task": "waits"},
        {"queue": "old"},
    ],
    ids=str,
)
def test_a_job_that_may_wait_or_run_long_travels_alone(fields: dict[str, Any]) -> None:
    special = _jobs(4, **fields)

    found = _packer().pack([*special, *_jobs(100)], now=0)

    assert [each for each in found if each[0] in special] == [[job] for job in special]
    assert sorted(map(len, found)) == [1] * 4 + [25] * 4


def test_jobs_that_the_caller_names_travel_alone() -> None:
    jobs = _jobs(100)

    assert sorted(_sizes(_packer(), jobs, alone={job.id for job in jobs[:3]})) == [1] * 3 + [1] + [24] * 4


def test_a_parcel_has_jobs_of_one_task_and_one_queue_in_their_order() -> None:
    jobs = [*_jobs(50), *_jobs(50, task="u"), *_jobs(100, queue="mail")]

    found = _packer().pack([job for four in zip(*[iter(jobs)] * 4, strict=True) for job in four], now=0)

    assert all(len({(job.task, job.queue) for job in each}) == 1 for each in found)
    assert [job.id for each in found for job in each] == [job.id for job in jobs]


def test_a_parcel_stays_below_a_quarter_of_a_mebibyte() -> None:
    found = _packer().pack([*_jobs(100, body=b"x" * 100_000), *_jobs(1, body=b"x" * 300_000)], now=0)

    assert {len(each) for each in found} == {2, 1}
    assert max(sum(len(job.body) for job in each) for each in found if len(each) > 1) < 262_144


def test_jobs_of_a_task_whose_job_was_returned_travel_alone() -> None:
    short = ShortTasks()
    for _ in range(100):
        short.record_run("t", 1)
    packer = Packer(short, count_unpacking=lambda _: 1, is_plain=lambda _: True)
    short.record_return("t", now=0)

    assert {len(each) for each in packer.pack(_jobs(100), now=9)} == {1}
    assert {len(each) for each in packer.pack(_jobs(100), now=10)} == {25}
