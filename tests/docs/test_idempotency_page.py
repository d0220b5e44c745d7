"""The examples and numbers of `docs/idempotency.md`."""

import asyncio
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from sqlalchemy import create_mock_engine, func, select
from sqlalchemy.orm import Session

from taskmq import TaskMQ
from taskmq.options.uniqueness import UniquePolicy, read_idempotency
from taskmq.worker import Worker, WorkerConfig
from taskmq_sql import metadata
from tests.docs.blocks import ROOT, blocks_of
from tests.unit.app_kit import new_url

_PAGE = ROOT / "docs" / "idempotency.md"
_TEXT = _PAGE.read_text()


def _example(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Any:
    (text,) = [block.text for block in blocks_of(_PAGE) if block.file_name == name]
    patch.chdir(folder)
    patch.setenv("TASKMQ_URL", new_url())
    module = ModuleType(name.removesuffix(".py"))
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return module


async def _work(app: TaskMQ) -> None:
    await Worker(app, WorkerConfig(burst=True)).run()


@pytest.mark.real_time
async def test_a_second_payment_returns_the_first_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = _example("shop.py", tmp_path, monkeypatch)

    async with shop.app:
        jobs = [await shop.pay.asend(7) for _ in range(3)]
        await shop.mail.options(idempotency_key="welcome:7").asend("ann@example.org")
    await _work(shop.app)
    async with shop.app:
        assert {await job.aresult(timeout=10) for job in jobs} == {"paid 7 under True"}


def test_the_payment_is_in_the_ledger_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = _example("ledger.py", tmp_path, monkeypatch)

    async def main() -> None:
        async with ledger.app:
            await ledger.pay.asend_many([("7",), ("7",), ("8",)])
        await _work(ledger.app)

    asyncio.run(main())
    with Session(ledger.engine) as session:
        assert session.scalar(select(func.count()).select_from(ledger.Payment)) == 2
    ledger.engine.dispose()


def test_a_unique_job_returns_the_id_of_the_waiting_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = _example("sync.py", tmp_path, monkeypatch)

    with sync.app:
        assert sync.on_change(7) == sync.on_change(7)
        assert sync.index.send(7, "a").id != sync.index.send(7, "b").id


def test_the_table_is_the_one_that_is_created() -> None:
    statements: list[str] = []
    engine: Any = create_mock_engine(
        "postgresql://", lambda sql, *_, **__: statements.append(str(sql.compile(engine)))
    )
    metadata.create_all(engine, checkfirst=False)

    (documented,) = [block.text for block in blocks_of(_PAGE) if block.language == "sql"]
    assert _words(documented) == _words(";".join(statements) + ";")


def test_the_policies_and_defaults_are_those_of_the_code() -> None:
    named = set(re.findall(r"^\| `(\w+)`(?: \(default\))? \|", _TEXT, re.MULTILINE))
    assert named >= {*get_args(UniquePolicy)}
    assert read_idempotency({}).ttl == 86_400
    assert WorkerConfig().lease == 60


def _words(sql: str) -> list[str]:
    return re.findall(r"\w+|[(),;]", sql.replace("\n", " "))
