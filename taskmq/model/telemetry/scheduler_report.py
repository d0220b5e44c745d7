"""Report of a scheduler about itself, kept in its lease of the group of schedulers."""

from typing import Final

import msgspec

from taskmq.errors import MalformedMessage

SCHEDULERS: Final = "schedulers"
"""Group of leases of the schedulers that run."""


class SchedulerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler at one moment. Travels as JSON; fields may be added.

    Attributes:
        version: of taskmq.
        app_version: of the app's code; empty: none was given.
        started: ms since the epoch.
        clock_offset: seconds by which its host's clock is ahead of the store's.
        rates: jobs dispatched per second, by partition that it holds.
    """

    host: str
    pid: int
    version: str
    started: int
    clock_offset: float
    rates: dict[int, float]
    app_version: str = ""


_decoder = msgspec.json.Decoder(SchedulerReport)


def encode_report(report: SchedulerReport) -> str:
    return msgspec.json.encode(report).decode()


def decode_report(text: str) -> SchedulerReport:
    """Decode the note of a scheduler's lease.

    Raises:
        MalformedMessage: the text is not a report.
    """
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"not a report of a scheduler: {error}") from error
