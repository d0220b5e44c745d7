"""Lists of a replica at the command line: people see their age, and scripts get current data."""

from pathlib import Path

import pytest

from tests.cli.kit import run_here, run_on_terminal

_LATE = """\
from pathlib import Path

from taskmq import TaskMQ
from taskmq.contracts.jobs import accepted_age
from taskmq_sql.sqlite import SqliteJobStore


class LateStore(SqliteJobStore):
    async def count_jobs(self, *args, **more):
        accepted = accepted_age()
        if accepted is not None and accepted.limit > {age}:
            accepted.note({age})
        return await super().count_jobs(*args, **more)


app = TaskMQ("local://broker", store="sqlite:///jobs.db")
app.sessions.job_store = lambda options: LateStore("sqlite:///jobs.db", Path("jobs.db"), clock=options.clock)
"""
_COMMAND = ("--app", "late:app", "job", "list", "--count")


@pytest.mark.parametrize(
    ("age", "shown"), [("7.2", "from a replica, up to 8 s old\ncount  0\n"), ("0.8", "count  0\n")]
)
def test_a_count_on_a_terminal_is_shown_with_its_age(tmp_path: Path, age: str, shown: str) -> None:
    (tmp_path / "late.py").write_text(_LATE.format(age=age))

    printed = run_on_terminal(tmp_path, *_COMMAND)

    assert printed.out.replace("\r", "") == shown


def test_a_count_for_a_script_is_current(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(_LATE.format(age="7.2"))

    printed = run_here(tmp_path, *_COMMAND)

    assert (printed.out, printed.err) == ("count  0\n", "")
