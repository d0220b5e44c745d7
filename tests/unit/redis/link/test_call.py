"""Commands as Redis reads them."""

from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Connection

from taskmq_redis.link.call import Word, pack


@given(st.lists(st.binary() | st.text() | st.integers()))
def test_a_command_is_packed_as_redis_py_packs_it(words: list[Word]) -> None:
    command = ("SET", *words)

    assert pack(command) == b"".join(Connection().pack_command(*command))
