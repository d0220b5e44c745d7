"""Progress bars of long commands: on a terminal, and nowhere else."""

from pathlib import Path

import pytest

from tests.cli.kit import run_here, run_on_terminal


def _upgrade(folder: Path) -> tuple[str, ...]:
    return ("--store", f"sqlite:///{folder / 'jobs.db'}", "--url", f"local://{folder}", "store", "upgrade")


def test_a_long_command_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    shown = run_on_terminal(tmp_path, *_upgrade(tmp_path))

    assert shown.code == 0
    assert "left" in shown.out
    # Nothing of it remains: the line is cleared.
    assert "\x1b[2K" in shown.out


@pytest.mark.parametrize("options", [("-o", "json"), ("--quiet",)])
def test_no_bar_is_shown_to_programs_or_in_quiet_mode(tmp_path: Path, options: tuple[str, ...]) -> None:
    shown = run_on_terminal(tmp_path, *options, *_upgrade(tmp_path))

    assert (shown.code, "left" in shown.out) == (0, False)


def test_no_bar_goes_into_a_pipe(tmp_path: Path) -> None:
    done = run_here(tmp_path, *_upgrade(tmp_path))

    assert (done.code, "left" in done.err) == (0, False)
