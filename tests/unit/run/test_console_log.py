"""A process's log on standard error: one line per record, and the app's own logging takes precedence."""

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from taskmq import LineFormatter
from taskmq.run.console_log import ConsoleFormatter, DetailText
from tests.cli.kit import environment

_PWN = "esc\x1b]0;PWN\x07\x1b[2J\nERROR forged: root logged in\r\u2028\x9b\u202e"
_SHOWN = "esc\\x1b]0;PWN\\x07\\x1b[2J\\nERROR forged: root logged in\\r\\u2028\\x9b\\u202e"


def _record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    kept = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("shop", logging.WARNING, "shop.py", 1, message, args, kept)


def _raise_error(message: str) -> BaseException:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_a_message_is_one_line_whatever_its_arguments_contain() -> None:
    assert LineFormatter("%(levelname)s %(message)s").format(_record("job %s", _PWN)) == f"WARNING job {_SHOWN}"


def test_a_traceback_keeps_its_lines_and_its_message_forges_none() -> None:
    first, *rest = LineFormatter().format(_record("failed", error=_raise_error(_PWN))).split("\n")

    assert first == "failed"
    assert rest[0] == "    Traceback (most recent call last):"
    assert "    ERROR forged: root logged in\\r\\u2028\\x9b\\u202e" in rest
    assert all(line.startswith("    ") for line in rest)


def test_a_traceback_formatted_by_another_handler_is_indented_too() -> None:
    record = _record("failed", error=_raise_error(_PWN))
    logging.Formatter().format(record)

    assert all(line.startswith("    ") for line in LineFormatter().format(record).split("\n")[1:])


def test_other_handlers_get_the_traceback_unchanged() -> None:
    record = _record("failed", error=_raise_error("no"))
    LineFormatter().format(record)

    assert "\nTraceback (most recent call last):\n" in logging.Formatter().format(record)


def test_a_stack_at_the_end_of_a_message_keeps_its_lines() -> None:
    stack = DetailText("File a\n  call()\n")

    assert LineFormatter().format(_record("job %s is in\n%s", "a\nb", stack)) == (
        "job a\\nb is in\n    File a\n      call()"
    )


def test_a_foreign_text_at_the_end_of_a_message_does_not_keep_its_lines() -> None:
    assert LineFormatter().format(_record("job is in %s", "File a\nERROR")) == "job is in File a\\nERROR"


def test_the_name_of_a_logger_and_the_fields_of_a_job_are_escaped() -> None:
    record = _record("sold")
    record.name = "shop\nERROR"
    record.__dict__.update(job_id=_PWN, task="a\nb", attempt=1, queue="q\n")

    line = ConsoleFormatter().format(record)

    assert line.endswith(f" shop\\nERROR: sold [a\\nb job={_SHOWN} attempt=1 queue=q\\n]")


@given(st.text(), st.text(), st.text())
def test_a_record_of_any_text_starts_only_one_line(message: str, job: str, failure: str) -> None:
    written = LineFormatter("at %(message)s").format(_record("%s%s", message, job, error=_raise_error(failure)))

    first, *rest = written.splitlines()
    assert first.startswith("at ")
    assert all(line.startswith("    ") for line in rest)


_SERVICE = """\
import logging, sys
from taskmq.run.console_log import begin_console_log, keep_console_log
begin_console_log(logging.INFO)
{app}
keep_console_log()
logging.getLogger().addHandler(logging.NullHandler())
logging.getLogger("taskmq.worker").info("took a job")
"""


def _run_and_log(folder: Path, app: str = "", **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _SERVICE.format(app=app)],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout + done.stderr


def test_the_log_goes_to_standard_error(tmp_path: Path) -> None:
    assert re.fullmatch(r"[-\d]+ [:,\d]+ INFO    \d+ taskmq.worker: took a job\n", _run_and_log(tmp_path))


def test_a_log_format_of_the_app_replaces_that_of_taskmq(tmp_path: Path) -> None:
    assert _run_and_log(tmp_path, "logging.basicConfig(format='mine %(message)s')") == "mine took a job\n"


def test_a_log_level_of_the_app_applies(tmp_path: Path) -> None:
    assert _run_and_log(tmp_path, "logging.basicConfig(level=logging.ERROR)") == ""


def test_a_console_handler_of_the_app_duplicates_no_line(tmp_path: Path) -> None:
    app = "h = logging.StreamHandler(sys.stdout); h.setFormatter(logging.Formatter('json %(message)s')); "
    app += "logging.getLogger().addHandler(h)"

    assert _run_and_log(tmp_path, app) == "json took a job\n"


def test_a_rich_handler_duplicates_no_line(tmp_path: Path) -> None:
    written = _run_and_log(
        tmp_path, "from rich.logging import RichHandler; logging.getLogger().addHandler(RichHandler())"
    )

    assert written.count("took a job") == 1


def test_a_handler_with_another_stream_leaves_the_console_unchanged(tmp_path: Path) -> None:
    written = _run_and_log(tmp_path, "logging.getLogger().addHandler(logging.FileHandler('app.log'))")

    assert written.count("took a job") == 1
    assert "took a job" in (tmp_path / "app.log").read_text()


def test_the_log_can_be_turned_off(tmp_path: Path) -> None:
    assert _run_and_log(tmp_path, TASKMQ_CONSOLE_LOG="off") == ""


def test_a_handler_without_a_file_stream_is_not_on_the_console() -> None:
    app = "import io; logging.getLogger().addHandler(logging.StreamHandler(io.StringIO()))"

    assert _run_and_log(Path(os.sep), app).count("took a job") == 1


def test_a_trailing_newline_of_a_message_is_dropped() -> None:
    assert LineFormatter().format(_record("Exception in the application\n")) == "Exception in the application"


def test_a_stream_handler_with_the_formatter_writes_each_record_on_one_line() -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(LineFormatter())

    handler.handle(_record(_PWN))
    handler.handle(_record("next"))

    assert text.getvalue() == f"{_SHOWN}\nnext\n"
