"""Lines on the status pipe."""

import pytest

from taskmq.model.telemetry.metrics import Count
from taskmq.worker.child_protocol import ChildReady, ChildReport, read_line, write_line
from tests.unit.supervisor.test_recycle_limits import _status


def test_a_written_message_is_read_back() -> None:
    count = Count("t", "q", {"succeeded": 1})
    count.run.add(0.5)
    report = ChildReport(status=_status(ended=1), counts=[count], cpu=0.25, depths={"q": 3})
    ready = ChildReady(app="a", broker="b", queues=["q"], tasks=["t"])

    assert [read_line(write_line(message)) for message in (ready, report)] == [ready, report]


@pytest.mark.parametrize("line", [b"", b"\n", b"hello\n", b"{}\n", b'{"type":"ready"}\n', b"\xff\xfe\n"])
def test_a_foreign_line_is_ignored(line: bytes) -> None:
    assert read_line(line) is None


def test_a_truncated_line_is_ignored() -> None:
    assert read_line(write_line(ChildReady(app="a", broker="b", queues=[], tasks=[]))[:-1]) is None
