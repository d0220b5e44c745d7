"""Data in memory is written at once, shared by its name, and gone with its last user."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from taskmq_embedded.memory import MEMORY, MemoryThread
from taskmq_embedded.work import Care, FileFailure
from tests.unit.embedded.kit import NOTES, add_note, count_notes


def _open_memory(name: str) -> MemoryThread[sqlite3.Connection]:
    return MemoryThread(Path(MEMORY + name), NOTES, nullcontext[sqlite3.Connection])


async def test_stores_of_one_name_share_memory_until_the_last_one_closes() -> None:
    first, second, other = _open_memory("one"), _open_memory("one"), _open_memory("other")
    await first.call(partial(add_note, text="here"), care=Care.DURABLE)
    assert await second.call(count_notes, care=Care.READ) == 1
    assert await other.call(count_notes, care=Care.READ) == 0

    del first, second

    assert await _open_memory("one").call(count_notes, care=Care.READ) == 0


async def test_an_error_in_memory_changes_nothing_and_reaches_only_its_caller() -> None:
    thread = _open_memory("failing")
    await thread.call(partial(add_note, text="a"), care=Care.DURABLE)

    def add_two(connection: sqlite3.Connection, items: Sequence[str]) -> list[str]:
        for item in items:
            add_note(connection, item)
        return [*items]

    with pytest.raises(sqlite3.IntegrityError):
        await thread.add(add_two, ["b", "a"], care=Care.DURABLE)

    assert await thread.call(count_notes, care=Care.READ) == 1
    assert await thread.add(add_two, ["b", "c"], care=Care.DURABLE) == ["b", "c"]


async def test_closing_one_user_leaves_memory_open_for_the_others() -> None:
    first, second = _open_memory("closing"), _open_memory("closing")
    await first.aclose()
    await first.aclose()

    with pytest.raises(FileFailure, match="the note file :memory:closing was closed"):
        await first.call(count_notes, care=Care.READ)
    assert await second.call(count_notes, care=Care.READ) == 0


async def test_a_second_process_cannot_open_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = _open_memory("forked")
    await thread.call(count_notes, care=Care.READ)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)

    with pytest.raises(FileFailure, match="in the memory of another process: name a file"):
        await thread.call(count_notes, care=Care.READ)
