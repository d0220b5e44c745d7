"""The benchmark of the server at a small size: it measures everything that it lists."""

import json
from pathlib import Path

import pytest

from benchmarks.server import main

pytestmark = [pytest.mark.rabbitmq, pytest.mark.campaign, pytest.mark.timeout(600)]

_SMALL = ["--seconds", "0.3", "--rows", "600", "--requests", "100", "--jobs", "5", "--no-durable"]


def test_every_row_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "server.json"

    assert main([*_SMALL, "--results", str(results)]) == 0

    rows = json.loads(results.read_text())
    assert list(rows) == [
        "post, 1 clients",
        "post, 16 clients",
        "post, 64 clients",
        "get, 16 clients",
        "get, 64 clients",
        "list, 600 rows",
        "pages, 600 rows",
        "post, 16 clients, 50 streams",
        "post, 16 clients, 1,000 idle",
        "memory, 100 requests",
        "accepted to started, idle",
    ]
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == list(rows)
