"""The examples of `docs/coordination.md`, and its arithmetic."""

import asyncio
import re
import sys
import uuid
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.contracts.system_clock import SystemClock
from taskmq.testing.coordinator_suite import CoordinatorSuite
from taskmq_local import forget_memory
from taskmq_local.memory.store import OpenState
from taskmq_local.memory.tables import MemoryDatabase, MemoryTables
from taskmq_local.state.leases import LocalLeases
from tests.docs.blocks import ROOT, blocks_of
from tests.servers.waiting import until

_PAGE = ROOT / "docs" / "coordination.md"
_YEAR = 365 * 24 * 60


def _block(name: str) -> str:
    (text,) = [block.text for block in blocks_of(_PAGE) if block.file_name == name]
    return text


@pytest.fixture
def importers() -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {"__name__": "importers"}
    exec(compile(_block("importers.py"), "importers.py", "exec"), names)
    memory = uuid.uuid4().hex
    names["app"].sessions.configure(url=f"memory://{memory}")
    yield names
    forget_memory(memory)


def test_one_process_leads_and_all_of_them_share(
    importers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    app: TaskMQ = importers["app"]

    async def main() -> None:
        async with app.member("importers", "other") as other:
            tasks = [asyncio.create_task(importers[name]()) for name in ("lead", "share")]

            async def are_members() -> bool:
                held = await app.sessions.coordinator().find("lock:importers: leader")
                return held is not None and len(await other.members()) >= 2 and _has_printed(capsys, shares)

            await until(are_members)
            rest = other.share(importers["PARTS"], await other.members())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert sorted([*rest, *map(int, re.findall(r"\d+", shares[-1]))]) == list(importers["PARTS"])
        await app.aclose()

    shares: list[str] = []
    asyncio.run(main())


def _has_printed(capsys: pytest.CaptureFixture[str], found: list[str]) -> bool:
    found += capsys.readouterr().out.splitlines()
    return bool(found)


def test_an_adapter_is_tested_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = MemoryTables()

    def open_leases(url: str) -> LocalLeases:
        assert url == "http://localhost:2379"
        return LocalLeases(MemoryDatabase(tables, OpenState(url)), SystemClock())

    mine = ModuleType("mine")
    vars(mine)["Coordinator"] = open_leases
    monkeypatch.setitem(sys.modules, "mine", mine)
    names: dict[str, Any] = {"__name__": "test_mine", "mine": mine}
    # The page names the type; here it is a function.
    text = _block("test_mine.py").replace(" -> mine.Coordinator", "")
    exec(compile(text, "test_mine.py", "exec"), names)

    suite = names["TestMine"]()

    assert isinstance(suite, CoordinatorSuite)
    assert suite.short == 1.0
    suite.test_many_concurrent_joins_are_all_listed()
    suite.test_a_returning_member_gets_a_larger_token()


def test_the_yearly_minutes_match_the_calculation_on_the_page() -> None:
    text = _PAGE.read_text()
    products = re.findall(r"(\d+) x (\d+) / 60 = ([\d.]+)", text)

    assert len(products) == 7
    for failures, seconds, minutes in products:
        assert round(int(failures) * int(seconds) / 60, 1) == float(minutes)
    assert f"{_YEAR:,} minutes" in text
    assert f"{1 - 2.1 / _YEAR:.4%}".replace("%", " %") in text
    assert "2.1 + 1.3 + 2.0 = 5.4 minutes" in text


def test_the_keys_on_the_page_are_those_of_the_code() -> None:
    text = _PAGE.read_text().partition("## One contract")[2].partition("\n## ")[0]
    sources = "".join(
        (ROOT / path).read_text()
        for path in (
            "taskmq/contracts/jobs/dispatch/store.py",
            "taskmq/contracts/stores/leases.py",
            "taskmq/durable/watermark.py",
            "taskmq/model/keys.py",
            "taskmq/scheduler/duties.py",
        )
    )
    names = [
        name
        for key in re.findall(r"^\| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([a-z]+)", key)
    ]
    assert len(names) == 6
    for name in names:
        assert f'"{name}' in sources, name
