"""Ids of new jobs: ordered, and unique in every process."""

import os
import sys

import pytest

from taskmq.model.envelope import submitted_at
from taskmq.tasks.job_ids import JOB_IDS, JobIds

_NOW = 1_700_000_000_000


def test_the_ids_of_one_millisecond_ascend() -> None:
    ids = JobIds()

    found = [ids.next(_NOW) for _ in range(10_000)]

    assert found == sorted(set(found))
    assert {submitted_at(each) for each in found} == {_NOW}


def test_each_millisecond_and_each_sequence_has_its_own_random_start() -> None:
    ids, others = JobIds(), JobIds()

    found = [ids.next(_NOW), ids.next(_NOW + 1), ids.next(_NOW), others.next(_NOW)]

    assert len({each[14:] for each in found}) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_continue_the_ids_of_its_parent() -> None:
    JOB_IDS.next(_NOW)
    reading, writing = os.pipe()

    if (child := os.fork()) == 0:
        os.write(writing, JOB_IDS.next(_NOW).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 36).decode() != JOB_IDS.next(_NOW)
    os.close(reading)
    os.close(writing)
