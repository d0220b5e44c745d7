from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from taskmq_local.database.tables import as_ranges


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_exactly_the_ids(ids: set[int]) -> None:
    ranges = as_ranges(list(ids))

    covered = [id_ for first, last in ranges for id_ in range(first, last + 1)]
    assert covered == sorted(ids)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(ranges))
