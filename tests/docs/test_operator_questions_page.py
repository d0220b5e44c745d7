"""docs/operator-questions.md: each command, on a real system in the state that the page describes."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.kit import Started, run_here
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.servers import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(240)]

_PAGE = ROOT / "docs" / "operator-questions.md"
_PATIENCE = timedelta(seconds=60)
_LOOKED_AT = timedelta(seconds=20)
_SECOND = timedelta(seconds=1)
# Differences between two runs of the same commands.
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f-]{21}\b|\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"^w1 +\S+ +\d+ +\S+", re.MULTILINE), "w1 HOST PID VERSION"),
    (re.compile(r"(\b\d+(\.\d+)? ?(ms|s|min|m|h|MB|GB)\b ?)+"), "SPAN "),
    (re.compile(r"\b\d+ %"), "SHARE"),
    (re.compile(r"\b\d+\.\d+\b"), "FIGURE"),
    (re.compile(r"[ \t]+"), " "),
)
# Commands on changing data: repeated until the output matches the page.
_LOOKS = ("stats", "queue list", "workers", "failures", "job list", "job explain")


class _Installation:
    """RabbitMQ, Redis and PostgreSQL with a scheduler and a worker, and the jobs on the page."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = {**env, "TASKMQ_APP": "billing:app", "LOGNAME": "ann", "COLUMNS": "200"}
        self._processes = ExitStack()
        write_files(_PAGE, folder)

    def taskmq(self, line: str) -> tuple[int, str]:
        """Run a command; return its exit code and all of its output."""
        done = run_here(self._folder, *shlex.split(line), env=self._env)
        return done.code, done.out + done.err

    def begin(self) -> None:
        self._do("queue pause print --note 'no paper'")
        self._processes.enter_context(Started(self._folder, "scheduler", "billing:app", env=self._env))
        options = (
            "-c",
            "4",
            "--name",
            "w1",
            "--capture-logs",
            "info",
            "--events",
            "on",
            "-Q",
            "mail,pdf,print,partner",
        )
        worker = self._processes.enter_context(
            Started(self._folder, "worker", "billing:app", *options, env=self._env)
        )
        worker.says("waiting for jobs")
        (self._folder / "mail-server-is-down").touch()
        self._do("job submit invoice.archive --args '[2026]' --job-id archive-2026 --tenant globex")
        for failed, (tenant, number) in enumerate((("acme", 17), ("acme", 18), ("globex", 40)), start=1):
            self._do(f"job submit invoice.mail --args '[{number}]' --job-id mail-{number} --tenant {tenant}")
            self._until_counted(failed, "status:failed task:invoice.mail")
        self._do("job submit invoice.render --args '[17]' --job-id render-17 --tenant acme")
        self._do("job submit invoice.print --args '[17]' --job-id print-17 --tenant acme")
        self._do("job submit invoice.mail --args '[19]' --job-id mail-19 --tenant acme --delay 1h")
        self._do("job submit invoice.mail --args '[20]' --job-id mail-20 --tenant acme --delay 30m")
        self._do("job cancel mail-19 --tenant acme --reason 'the invoice was wrong'")
        self._do("schedule add @acme:statements invoice.render --cron '30 2 * * *' --tz Europe/Berlin --args '[1]'")
        self._do("schedule add reminders invoice.render --every 20m --args '[1]'")
        self._do("send partner.push --args '[17]' --queue partner --tenant acme")
        self._until_counted(1, "status:succeeded task:invoice.render")
        self._until_counted(1, "status:running task:invoice.archive duration:>10s")
        self._until_counted(1, "status:queued task:invoice.print wait:>10s")
        eventually(
            lambda: "invoice.mail" in self.taskmq("stats --by task")[1], "figures", within=_PATIENCE, every=_SECOND
        )
        eventually(
            lambda: "rendered" in self.taskmq("job logs render-17 --tenant acme")[1],
            "logs",
            within=_PATIENCE,
            every=_SECOND,
        )
        (self._folder / "mail-server-is-down").unlink()

    def close(self) -> None:
        self._processes.close()

    def _do(self, line: str) -> None:
        code, printed = self.taskmq(line)
        assert code == 0, (line, printed)

    def _until_counted(self, expected: int, query: str) -> None:
        def is_counted() -> bool:
            return self.taskmq(f"job list {shlex.quote(query)} --count")[1].split()[-1] == str(expected)

        eventually(is_counted, query, within=_PATIENCE, every=_SECOND)


@pytest.fixture
def installation(tmp_path: Path, amqp_url: str, redis_url: str, job_store_url: str) -> Iterator[_Installation]:
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url, "TASKMQ_STORE": job_store_url}
    opened = _Installation(tmp_path, env)
    try:
        opened.begin()
        yield opened
    finally:
        opened.close()


def _shape(printed: str) -> list[str]:
    """Return the lines of an output without values that never repeat."""
    for pattern, word in _CHANGING:
        printed = pattern.sub(word, printed)
    return [line.strip() for line in printed.splitlines() if line.strip()]


def _commands() -> Iterator[tuple[str, str]]:
    """Return each command on the page with its output."""
    for block in blocks_of(_PAGE):
        if block.language == "console":
            for part in re.split(r"^\$ taskmq ", block.text, flags=re.MULTILINE)[1:]:
                line, _, printed = part.partition("\n")
                yield line, printed


@pytest.mark.nightly("tests/cli")
def test_each_command_on_the_page_prints_the_shown_output(installation: _Installation) -> None:
    different: list[str] = []
    for line, expected in _commands():
        printed = ""

        def is_shown(line: str = line, expected: str = expected) -> bool:
            nonlocal printed
            code, printed = installation.taskmq(line)
            assert code == 0, (line, printed)
            return _shape(printed) == _shape(expected)

        if line.startswith(_LOOKS):
            with contextlib.suppress(TimeoutError):
                eventually(is_shown, line, within=_LOOKED_AT, every=_SECOND)
        else:
            is_shown()
        if _shape(printed) != _shape(expected):
            different.append(f"$ taskmq {line}\n{printed}")

    assert not different, "\n".join(different)


def test_the_page_answers_eleven_questions_each_by_a_command() -> None:
    _, *sections = _PAGE.read_text().split("\n## ")

    questions = [section for section in sections if "?\n" in section.partition("\n\n")[0] + "\n"]
    assert len(questions) == 11
    assert all("```console\n$ taskmq " in section for section in questions)
