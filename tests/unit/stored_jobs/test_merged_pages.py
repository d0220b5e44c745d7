"""Pages of stored and sent jobs, merged into one list."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.jobs import JobPage, JobRecord
from taskmq.model.states import JobState
from taskmq.stored_jobs.recorded_jobs import merge_pages

# Ids of jobs, and whether each matches the filter.
_Jobs = dict[int, bool]
_JOBS = st.dictionaries(st.integers(0, 200), st.booleans(), max_size=40)


def _read_page(jobs: _Jobs, after: str | None, *, limit: int, bound: int) -> JobPage:
    """Return a page of a list that examines up to `bound` jobs."""
    ids = [_id(number) for number in sorted(jobs, reverse=True) if after is None or _id(number) < after]
    found = [each for each in ids[:bound] if jobs[int(each)]]
    page = [
        JobRecord(id=each, task="t", queue="q", priority=4, state=JobState.QUEUED, version=1, due=0, submitted=0)
        for each in found[:limit]
    ]
    if len(found) > limit:
        return JobPage(page, found[limit - 1])
    return JobPage(page, ids[bound - 1], is_bounded=True) if len(ids) > bound else JobPage(page, None)


def _read_all(lists: Sequence[_Jobs], *, limit: int, bounds: Sequence[int]) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        pages = [_read_page(jobs, after, limit=limit, bound=bound) for jobs, bound in zip(lists, bounds, strict=True)]
        page = merge_pages(pages, limit)
        assert len(page.jobs) <= limit
        assert len(page.jobs) == limit or page.after is None or page.is_bounded
        found += [job.id for job in page.jobs]
        if page.after is None:
            return found
        assert after is None or page.after < after
        after = page.after


def _id(number: int) -> str:
    return f"{number:03}"


@given(_JOBS, _JOBS, st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))
def test_merged_pages_have_every_matching_job_once_and_in_order(
    stored: _Jobs, sent: _Jobs, limit: int, first: int, second: int
) -> None:
    sent = {number: is_match for number, is_match in sent.items() if number not in stored}

    found = _read_all([stored, sent], limit=limit, bounds=[first, second])

    matching = [number for number, is_match in (stored | sent).items() if is_match]
    assert found == [_id(number) for number in sorted(matching, reverse=True)]
