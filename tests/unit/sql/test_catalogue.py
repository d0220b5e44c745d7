import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import Catalogued
from taskmq.model.jobs.definitions import DefinitionContent
from taskmq_sql import open_job_store


@pytest.mark.real_time
async def test_a_definition_refused_for_its_version_leaves_no_row(tmp_path: Path) -> None:
    store = open_job_store(f"sqlite:///{tmp_path}/jobs.db", BrokerOptions(name="test"))
    assert isinstance(store, Catalogued)
    content = DefinitionContent(task="report")

    assert await store.definitions.put("acme", "report", content, version=3) is None
    kept = await store.definitions.put("acme", "kept", content, version=0)

    assert kept is not None
    assert await store.definitions.put("acme", "kept", content, version=3) is None
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        assert connection.execute("select name, version from definition").fetchall() == [("kept", 1)]
