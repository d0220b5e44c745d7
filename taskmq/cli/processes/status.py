"""`taskmq status`."""

from typing import Any, Final

import msgspec

from taskmq.api.health import ClockView, FindingView, PartitionView, SchedulerView, SystemPart
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_record, print_rows
from taskmq.cli.server_link import ask, text_of_instant

_PARTS: Final = ("part", "status", "since", "check", "size", "finding", "without", "address")
_SCHEDULERS: Final = ("scheduler", "pid", "version", "started", "partitions")
_PARTITIONS: Final = ("partition", "holder", "late", "rate")
_CLOCKS: Final = ("clock", "of", "offset", "wrong")
_FINDINGS: Final = ("level", "about", "finding", "remedy")
_MEGABYTE: Final = 2**20


def status() -> int:
    """Show the health of store, broker, state, schedulers, partitions, workers and clocks, and what `doctor` finds.

    Exits with 1 if a part is down, fully or partly, or if there is a problem.
    """
    found = ask(lambda api: api.system_health())
    if current_globals().output != "table":
        print_record(msgspec.to_builtins(found))
    else:
        print_rows(_PARTS, [_part(one) for one in found.parts], folded=("finding", "without"))
        for title, columns, rows in (
            ("schedulers", _SCHEDULERS, [_scheduler(one) for one in found.schedulers]),
            ("partitions", _PARTITIONS, [_partition(one) for one in found.partitions]),
            ("clocks, compared with the one that was asked", _CLOCKS, [_clock(one) for one in found.clocks]),
            ("findings", _FINDINGS, [_finding(one) for one in found.findings]),
        ):
            if rows:
                note(f"\n{title}:")
                print_rows(columns, rows, folded=("finding", "remedy"))
    return OK if found.works and not any(one.level == "problem" for one in found.findings) else FAILED


def _part(one: SystemPart) -> dict[str, Any]:
    return {
        "part": one.part,
        "status": one.status,
        "since": text_of_instant(one.since),
        "check": "" if one.seconds is None else f"{one.seconds * 1000:.1f} ms",
        "size": "" if one.size is None else f"{one.size / _MEGABYTE:.1f} MB",
        "finding": one.finding,
        "without": "" if one.status in {"works", "absent"} else one.without,
        "address": one.address,
    }


def _scheduler(one: SchedulerView) -> dict[str, Any]:
    return {
        "scheduler": one.name,
        "pid": one.pid,
        "version": one.version,
        "started": text_of_instant(one.started),
        "partitions": ", ".join(map(str, one.partitions)) or "none",
    }


def _partition(one: PartitionView) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "holder": one.holder or "no scheduler",
        "late": f"{one.late:.1f} s",
        "rate": "" if one.rate is None else f"{one.rate:g}/s",
    }


def _clock(one: ClockView) -> dict[str, Any]:
    return {"clock": one.kind, "of": one.of, "offset": f"{one.offset:+.3f} s", "wrong": "yes" if one.is_wrong else ""}


def _finding(one: FindingView) -> dict[str, Any]:
    return {"level": one.level, "about": one.about, "finding": one.finding, "remedy": one.remedy}
