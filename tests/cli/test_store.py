"""`taskmq store`."""

from pathlib import Path

from tests.cli.kit import Here
from tests.servers.postgres import PostgreSQL


def test_a_file_has_the_tables_of_this_version_at_once(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    upgraded, checked = taskmq("store", "upgrade", "--store", store), taskmq("store", "check", "--store", store)

    assert (upgraded.code, checked.code) == (0, 0)
    assert "has the tables of this version" in upgraded.err


def test_a_database_gets_its_tables_by_the_command_and_jobs_are_refused_before(taskmq: Here) -> None:
    with PostgreSQL() as server:
        store = server.create_database()
        before = taskmq("store", "check", "--store", store)
        upgraded = taskmq("store", "upgrade", "--store", store)
        version = taskmq("-o", "json", "store", "current", "--store", store)

    assert before.code == 6
    assert "taskmq store upgrade" in before.err
    assert upgraded.code == 0
    assert version.data["version"]


def test_without_a_store_the_command_says_what_to_give_it(taskmq: Here) -> None:
    result = taskmq("store", "check")

    assert result.code == 2
    assert "need a store" in result.err


def test_a_store_that_cannot_be_reached_is_told_from_one_that_is_not_ready(taskmq: Here) -> None:
    assert taskmq("store", "current", "--store", "postgresql://nobody@127.0.0.1:1/none").code == 5


def test_ended_jobs_are_forgotten_on_an_operators_word_in_whole_days(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    pruned = taskmq("store", "prune", "--older-than", "7d", "--store", store)
    hours = taskmq("store", "prune", "--older-than", "36h", "--store", store)
    none = taskmq("store", "prune", "--older-than", "0d", "--store", store)

    assert (pruned.code, "ended over 7d ago" in pruned.err) == (0, True)
    assert (hours.code, none.code) == (2, 2)
    assert "whole days, at least 1d" in hours.err
