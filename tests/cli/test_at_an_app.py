"""Dependencies of commands that call the API of the local app."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import environment

_APP = 'from taskmq import TaskMQ\n\napp = TaskMQ("local://.taskmq", store="sqlite:///jobs.db")\n'
_RUN = """\
import sys

for name in ("argon2", "httpx", "litestar", "uvicorn"):
    sys.modules[name] = None

from taskmq.cli import run

sys.exit(run(sys.argv[1:]))
"""


_LATER = pytest.mark.nightly(
    "tests/cli/test_at_an_app.py::test_a_command_with_an_app_needs_no_server_library_and_no_client"
)


@pytest.mark.parametrize(
    "words",
    [
        "admin user list",
        "job list",
        *(
            pytest.param(words, marks=_LATER)
            for words in (
                "bulk begin hold task:none --wait --yes",
                "queue list -Q images",
                "admin role list",
                "admin tenant list",
                "admin token list",
                "alert list",
                "audit list",
                "definition list",
                "failures",
                "node list",
                "pool list",
                "quota list",
                "schedule list",
                "stats",
                "task list",
                "top --count 1 --every 0.2s -Q images",
                "workers --within 10ms",
                "workflow list",
            )
        ),
    ],
)
def test_a_command_with_an_app_needs_no_server_library_and_no_client(words: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_APP)

    done = subprocess.run(
        [sys.executable, "-c", _RUN, "--app", "shop:app", *words.split()],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
