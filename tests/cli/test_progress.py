"""Bars of long commands: on a terminal, and nowhere else."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

_UPGRADE = (sys.executable, "-m", "taskmq", "store", "upgrade")


def _on_a_terminal(folder: Path, *options: str) -> str:
    """What the command writes to a terminal that is its standard error."""
    ours, its = pty.openpty()
    told = {"TASKMQ_STORE": f"sqlite:///{folder / 'jobs.db'}", "TASKMQ_URL": f"local://{folder}", "TERM": "xterm"}
    with subprocess.Popen(
        [*_UPGRADE, *options], stdout=subprocess.DEVNULL, stderr=its, env=os.environ | store
    ) as one:
        os.close(its)
        shown = b""
        # A terminal whose last writer has gone says so by an error.
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass
        os.close(ours)
        assert one.wait(30) == 0
    return shown.decode()


def test_a_long_command_shows_on_a_terminal_how_far_it_is(tmp_path: Path) -> None:
    shown = _on_a_terminal(tmp_path)

    assert "left" in shown
    # Nothing of it is left behind: the line is cleared.
    assert "\x1b[2K" in shown


@pytest.mark.parametrize("options", [("-o", "json"), ("--quiet",)])
def test_no_bar_is_shown_where_programs_read_or_quiet_is_wanted(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "left" not in _on_a_terminal(tmp_path, *options)


def test_no_bar_goes_into_a_pipe(tmp_path: Path) -> None:
    store = {"TASKMQ_STORE": f"sqlite:///{tmp_path / 'jobs.db'}", "TASKMQ_URL": f"local://{tmp_path}"}

    done = subprocess.run(_UPGRADE, capture_output=True, text=True, env=os.environ | store, timeout=50)

    assert (done.returncode, "left" in done.stderr) == (0, False)
