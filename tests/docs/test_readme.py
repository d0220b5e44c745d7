"""The README matches the behaviour."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from taskmq.cli import run
from tests.cli.kit import Started
from tests.docs.blocks import README, ROOT, Block, blocks_of, write_files

_BARE = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
_EXPORT = re.compile(r"export (TASKMQ_\w+)=")
_COMMAND = re.compile(r"`(taskmq )?([^`]+)`")


def _readme() -> str:
    return README.read_text()


def _commands() -> list[list[str]]:
    """Return the words of each command in the README's table of commands."""
    table = _readme().partition("| to | commands |")[2].partition("\n\n")[0]
    found: list[list[str]] = []
    for row in table.splitlines():
        # "`taskmq dlq list images`, `show`": the second one is a command of the same noun.
        for program, command in _COMMAND.findall(row):
            found.append(command.split() if program else [found[-1][0], *command.split()])
    return found


def test_the_readme_has_at_most_160_lines() -> None:
    assert len(_readme().splitlines()) <= 160


def test_every_file_that_the_readme_shows_is_python(tmp_path: Path) -> None:
    assert write_files(README, tmp_path) == {"shop.py", "tour.py", "payouts.py"}
    for path in tmp_path.iterdir():
        compile(path.read_text(), path.name, "exec")


def _consoles() -> tuple[Block, Block]:
    """Return the console blocks after the first example: without a state, and with one."""
    without, with_state = [block for block in blocks_of(README) if block.language == "console"][:2]
    return without, with_state


def _run_console(console: Block, folder: Path, env: Mapping[str, str], *, says: str = "") -> None:
    """Run a block with servers of the test, until the worker has printed something."""
    exported = {name for command in console.commands if (name := _EXPORT.match(command))}
    (worker,) = [command.removesuffix(" &") for command in console.commands if command.endswith(" &")]
    others = [command for command in console.commands if command.startswith("python ")]
    assert exported
    assert others
    with Started(folder, *worker.split()[1:], env={**env, "PYTHONUNBUFFERED": "1"}) as started:
        printed = "".join(_run_command(command, folder, env) for command in others)
        if says:
            started.says(says)
    assert printed == console.output
    assert started.process.returncode == 0


def test_the_first_example_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    """On the embedded broker, the default without any variable."""
    write_files(README, tmp_path)
    without, with_state = _consoles()

    _run_console(without, tmp_path, {}, says=_worker_output())
    _run_console(with_state, tmp_path, {})

    assert (tmp_path / ".taskmq").is_dir()


@pytest.mark.rabbitmq
def test_the_first_example_runs_on_rabbitmq_unchanged(tmp_path: Path, amqp_url: str, redis_url: str) -> None:
    """First without a state; the part that needs one has it by then."""
    write_files(README, tmp_path)
    without, with_state = _consoles()

    _run_console(without, tmp_path, {"TASKMQ_URL": amqp_url}, says=_worker_output())
    _run_console(with_state, tmp_path, {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url})

    assert not (tmp_path / ".taskmq").exists()


def _worker_output() -> str:
    said: list[str] = re.findall(r"The worker prints `([^`]+)`", _readme())
    assert len(said) == 1
    return said[0]


def test_the_tour_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    write_files(README, tmp_path)

    assert _run_command("python tour.py", tmp_path) == _promised_output("tour.py")


def test_a_payout_is_submitted_changed_and_cancelled(tmp_path: Path) -> None:
    write_files(README, tmp_path)

    printed = _run_command("python payouts.py", tmp_path, {"TASKMQ_STORE": "sqlite:///jobs.db"})

    assert printed == _promised_output("payouts.py")


def _promised_output(name: str) -> str:
    """Return the output of a file in the README, from the comment on its last line."""
    (block,) = [block for block in blocks_of(README) if block.file_name == name]
    return block.text.partition("  # prints: ")[2]


def _run_command(command: str, folder: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env={**_BARE, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_wrong_argument_is_refused_as_the_readme_says(tmp_path: Path) -> None:
    write_files(README, tmp_path)
    program = (
        "import shop, taskmq\ntry: shop.resize.send('seven')\nexcept taskmq.InvalidArguments as error: print(error)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=_BARE, capture_output=True, text=True, timeout=30
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "photo" in done.stdout
    assert not (tmp_path / ".taskmq").exists()


def test_each_command_of_the_table_exists_with_the_options_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    @cache
    def help_of(*noun: str) -> str:
        assert run([*noun, "--help"]) == 0, f"taskmq {' '.join(noun)} is no command"
        return capsys.readouterr().out

    for words in _commands():
        noun = words[:2] if words[0] in {"queue", "dlq"} else words[:1]
        help_text = help_of(*noun)
        assert "Usage: taskmq " + " ".join(noun) in help_text
        for word in words:
            if word.startswith("-"):
                assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", help_text), f"{word} of {words}"


def test_the_table_shows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])

    listed = set(re.findall(r"│ ([a-z][a-z-]*) {2,}\S", capsys.readouterr().out))
    assert listed == {words[0] for words in _commands()}


def test_each_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"(?:\$ |`)make ([a-z-]+)", _readme()))
    assert named
    assert named <= targets


def test_console_blocks_contain_only_known_commands() -> None:
    for block in blocks_of(README):
        for command in block.commands if block.language == "console" else []:
            assert command.split()[0] in {"taskmq", "python", "make", "pip", "export", "kill"}, command


def test_extras_that_the_readme_names_exist() -> None:
    extras = re.findall(r"'\.\[([\w,]+)\]'", _readme())

    project = (ROOT / "pyproject.toml").read_text()
    assert extras
    for extra in ",".join(extras).split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
