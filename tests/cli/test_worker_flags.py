"""`taskmq worker`: what its flags may say."""

import pytest

from taskmq.cli.processes.worker import _queues
from taskmq.errors import InvalidOption


def test_queues_are_named_with_their_shares_and_slots() -> None:
    names, slots, shares = _queues("images=4, mail*3,bills*2=1,rest,")

    assert names == ("images", "mail", "bills", "rest")
    assert slots == {"images": 4, "bills": 1}
    assert shares == {"mail": 3, "bills": 2}
    assert _queues("") == ((), {}, {})


@pytest.mark.parametrize("text", ["images=", "images=0", "images=x", "images*", "images*-1", "images*2=many"])
def test_shares_and_slots_are_whole_numbers_from_one(text: str) -> None:
    with pytest.raises(InvalidOption, match="a queue, or one with its share and slots"):
        _queues(text)
