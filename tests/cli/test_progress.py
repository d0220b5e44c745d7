"""Progress bars of long commands: on a terminal, and nowhere else."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

_UPGRADE = (sys.executable, "-m", "taskmq", "store", "upgrade")


def _environment(folder: Path) -> dict[str, str]:
    store = {"TASKMQ_STORE": f"sqlite:///{folder / 'jobs.db'}", "TASKMQ_URL": f"local://{folder}", "TERM": "xterm"}
    return {**os.environ, **store}


def _on_a_terminal(folder: Path, *options: str) -> str:
    """Run the command with a terminal as standard error; return its output."""
    ours, its = pty.openpty()
    command = [*_UPGRADE, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its, env=_environment(folder)) as process:
        os.close(its)
        shown = b""
        # A terminal without writers reports that by an error.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        assert process.wait(30) == 0
    return shown.decode()


def test_a_long_command_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    shown = _on_a_terminal(tmp_path)

    assert "left" in shown
    # Nothing of it remains: the line is cleared.
    assert "\x1b[2K" in shown


@pytest.mark.parametrize("options", [("-o", "json"), ("--quiet",)])
def test_no_bar_is_shown_to_programs_or_in_quiet_mode(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "left" not in _on_a_terminal(tmp_path, *options)


def test_no_bar_goes_into_a_pipe(tmp_path: Path) -> None:
    done = subprocess.run(_UPGRADE, capture_output=True, text=True, env=_environment(tmp_path), timeout=50)

    assert (done.returncode, "left" in done.stderr) == (0, False)
