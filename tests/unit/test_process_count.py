"""How many processes a worker has."""

import pytest

from taskmq.errors import InvalidOption
from taskmq.units import parse_processes


def test_processes_are_a_number_or_a_range() -> None:
    assert parse_processes("4") == (4, None)
    assert parse_processes(" 1-8 ") == (1, 8)
    assert parse_processes("2-2") == (2, 2)


@pytest.mark.parametrize("text", ["", "0", "-1", "1-", "-8", "8-1", "0-4", "many", "1-8-9"])
def test_what_is_no_number_of_processes_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="such as '1-8'"):
        parse_processes(text)
