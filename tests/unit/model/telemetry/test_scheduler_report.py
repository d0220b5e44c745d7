import pytest

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.scheduler_report import SchedulerReport, decode_report, encode_report

_REPORT = SchedulerReport(
    host="web", pid=4711, version="0.3.0", started=1_000, clock_offset=-0.25, rates={0: 12.5, 7: 0.0}
)


def test_a_report_survives_its_journey() -> None:
    assert decode_report(encode_report(_REPORT)) == _REPORT


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no JSON"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage, match="not a report of a scheduler"):
        decode_report(text)
