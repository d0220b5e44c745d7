"""Commands through a hostile server, on a terminal: its texts are shown without controlling the terminal."""

import json
import re
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, Final, cast

import pytest

from taskmq.api._generated.operations import OPERATIONS
from taskmq.cli import run
from taskmq.server.examples import EXAMPLES
from tests.cli.kit import Here, Result, run_on_terminal

_PWN: Final = "x\x1b]0;PWN\x07\x1b[2J\rERROR\x9b2J\x7f\u2028\u202e"
# Words that a client parses: it refuses answers with other values before showing them.
_READ: Final = re.compile(
    r"state|status|kind|at|on|by_.*|.*_at|.*_time|started|ended|seen|severity|mode|role|level|policy|expires.*|next"
    r"|since|until|created|from|to|when|oldest.*|last.*|day|priority|lane|type|version|emitted|scheduled_for"
    r"|seen_by|at_limit"
)
_COMMANDS: Final = (
    ("job", "show", "a"),
    ("job", "list"),
    ("job", "history", "a"),
    ("job", "explain", "a"),
    ("job", "attempts", "a"),
    # Each page of this server leads to the next.
    ("job", "logs", "a", "--limit", "1"),
    ("job", "cancel", "a"),
    ("job", "hold", "a"),
    ("queue", "list"),
    ("queue", "show", "a"),
    ("dlq", "list", "a"),
    ("dlq", "show", "a", "b"),
    ("dlq", "groups", "a"),
    ("schedule", "list"),
    ("schedule", "next", "a"),
    ("schedule", "history", "a"),
    ("reaction", "list"),
    ("reaction", "show", "a"),
    ("reaction", "put", "a", "b", "--when", "{}"),
    ("reaction", "remove", "a", "--yes"),
    ("definition", "list"),
    ("definition", "show", "a"),
    ("task", "list"),
    ("task", "show", "a"),
    ("node", "list"),
    ("node", "show", "a"),
    ("pool", "list"),
    ("quota", "list"),
    ("workflow", "list"),
    ("workflow", "versions", "a"),
    ("run", "list"),
    ("run", "show", "a"),
    ("run", "steps", "a"),
    ("run", "graph", "a"),
    ("workers",),
    ("worker", "control", "stacks"),
    ("bulk", "list"),
    ("bulk", "show", "a"),
    ("alert", "list"),
    ("alert", "rules"),
    ("stats",),
    ("failures",),
    ("admin", "user", "list"),
    ("admin", "token", "list", "a"),
    ("admin", "tenant", "list"),
    ("audit", "list"),
    ("audit", "export"),
)

# Name, method and path of each operation with an example.
_FORMS: Final = [
    (name, one.method, re.compile(".*" + re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(one.path))))
    for name, one in OPERATIONS.items()
    if name in EXAMPLES
]


def _spoilt(value: object, key: str = "") -> object:
    """Return the same value with control characters in each of its human readable texts."""
    if isinstance(value, dict):
        # A list has one page, otherwise a command would follow it forever.
        record = cast("dict[str, object]", value)
        one_page = {"next": None} if {"items", "next"} <= record.keys() else {}
        return {name: _spoilt(one, name) for name, one in {**record, **one_page}.items()}
    if isinstance(value, list):
        return [_spoilt(one, key) for one in cast("list[object]", value)]
    return f"{value}{_PWN}" if isinstance(value, str) and not _READ.fullmatch(key) else value


class _Harmful(BaseHTTPRequestHandler):
    """Answers each call by its example, or by an error, with control characters in it."""

    fails: ClassVar[bool] = False

    def do_GET(self) -> None:
        content: object = {
            "type": "about:blank",
            "title": _PWN,
            "status": 404,
            "detail": f"gone {_PWN}\ntaskmq: all is well",
            "code": "job_not_found",
            "request_id": _PWN,
            "hint": _PWN,
        }
        status = 404
        name = None if self.fails else self._operation()
        if name is not None:
            answers = EXAMPLES[name].answers
            status = min(answers)
            content = _spoilt(answers[status])
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/problem+json" if name is None else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the standard library's names

    def _operation(self) -> str | None:
        path = self.path.partition("?")[0]
        found = (name for name, method, form in _FORMS if method == self.command and form.fullmatch(path))
        return next(found, None)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Do nothing: the standard library would write each request to standard error."""


class _Failing(_Harmful):
    fails = True


@contextmanager
def _harmful(kind: type[_Harmful]) -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _assert_is_harmless(done: Result, command: tuple[str, ...]) -> None:
    text = done.out.replace("\r\n", "\n")
    acting = [char for char in text if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Zl", "Zp"}]
    assert (acting, "\u202e" in text) == ([], False), (command, text)
    assert "Traceback" not in text, (command, text)


class _Terminal(StringIO):
    """A stream of this process that commands take for a terminal."""

    def isatty(self) -> bool:
        return True


_LATER = pytest.mark.nightly(
    "tests/cli/test_hostile_server.py::test_answers_of_a_hostile_server_do_not_control_a_terminal"
)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("output", ["table", *(pytest.param(each, marks=_LATER) for each in ("json", "jsonl"))])
def test_answers_of_a_hostile_server_do_not_control_a_terminal(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "300")
    shown = 0
    with _harmful(_Harmful) as address:
        for command in _COMMANDS:
            terminal = _Terminal()
            monkeypatch.setattr("sys.stdout", terminal)
            monkeypatch.setattr("sys.stderr", terminal)
            code = run(("--server", address, "-o", output, *command))
            _assert_is_harmless(Result(code, terminal.getvalue(), ""), command)
            shown += "PWN" in terminal.getvalue()
    assert shown > len(_COMMANDS) / 2


def test_refusals_of_a_hostile_server_do_not_control_a_terminal(home: Path) -> None:
    command = ("job", "show", "a")
    with _harmful(_Failing) as address:
        done = run_on_terminal(home, "--server", address, *command, columns=300)

    _assert_is_harmless(done, command)
    assert "taskmq: gone x\\x1b]0;PWN" in done.out
    assert "\ntaskmq: all is well" not in done.out.replace("\r", "")


def test_a_token_is_sent_to_another_machine_only_over_tls(taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_TOKEN", "tmq_secret")

    refused = taskmq("--server", "http://192.0.2.1:1", "job", "list")

    assert refused.code == 2
    assert "http://192.0.2.1:1 has no TLS, so others could read the token" in refused.err
    assert "--insecure" in refused.err
    assert "tmq_secret" not in refused.err


@pytest.mark.parametrize(
    "how",
    [
        "option",
        "this machine",
        *(
            pytest.param(
                each,
                marks=pytest.mark.nightly(
                    "tests/cli/test_hostile_server.py::test_a_token_is_sent_without_tls_only_on_request_or_to_this_machine"
                ),
            )
            for each in ("variable", "no token", "v6", "a name of this machine")
        ),
    ],
)
def test_a_token_is_sent_without_tls_only_on_request_or_to_this_machine(
    taskmq: Here, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # A closed port of this machine, by a name that is not known to be this machine's.
    address, options = "http://0.0.0.0:1", ("--insecure",) if how == "option" else ()
    if how != "no token":
        monkeypatch.setenv("TASKMQ_TOKEN", "tmq_secret")
    if how == "variable":
        monkeypatch.setenv("TASKMQ_INSECURE", "1")
    own = {"this machine": "127.0.0.1", "v6": "[::1]", "a name of this machine": "localhost"}
    address = f"http://{own[how]}:1" if how in own else address

    tried = taskmq("--server", address, *options, "job", "list")

    assert (tried.code, f"no server answers at {address}" in tried.err) == (5, True)
