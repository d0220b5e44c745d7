import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.units import parse_size, size_text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, 1),
        ("1", 1),
        ("17B", 17),
        ("1k", 1024),
        ("512M", 512 * 1024**2),
        ("1.5G", 3 * 512 * 1024**2),
        ("2 GiB", 2 * 1024**3),
        (" 3 tb ", 3 * 1024**4),
    ],
)
def test_a_size_is_read_as_people_write_it(written: object, meant: int) -> None:
    assert parse_size(written, what="memory") == meant


@pytest.mark.parametrize(
    "written", [0, -1, True, 1.5, None, "", "0", "0M", "0.0001", "M", "1X", "-1M", "1M1K", "1e3"]
)
def test_what_is_no_size_is_refused_by_name(written: object) -> None:
    with pytest.raises(InvalidOption, match="--max-memory="):
        parse_size(written, what="--max-memory")


@given(st.integers(1, 1024**5))
def test_what_is_written_is_nearly_what_is_read(size: int) -> None:
    assert parse_size(size_text(size), what="size") == pytest.approx(size, rel=1e-3, abs=1)


def test_sizes_are_written_with_the_largest_unit_that_fits() -> None:
    sizes = (1, 1023, 1024, 3 * 512 * 1024**2, 1024**4)
    assert [size_text(size) for size in sizes] == ["1B", "1023B", "1K", "1.5G", "1T"]
