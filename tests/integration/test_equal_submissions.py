"""Processes with different hash seeds and dictionary orders encode the same: one job, one key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SHOP = """
import sys
from dataclasses import dataclass, field
from pydantic import BaseModel
from taskmq import TaskMQ
from taskmq.schedules.triggers import every

class Team(BaseModel):
    members: set[str]

@dataclass
class Parcel:
    tags: frozenset[str]
    weights: dict[str, int] = field(default_factory=dict)

words = "alpha beta gamma delta epsilon".split()[::int(sys.argv[2])]
weights = {word: len(word) for word in words}
call = Parcel(frozenset(words), weights), Team(members=set(words)), weights
app = TaskMQ("memory://shop", store=f"sqlite:///{sys.argv[1]}", content_type=sys.argv[3])

@app.task(name="ship")
def ship(parcel: Parcel, team: Team, more: dict[str, int], **rest: int) -> None: ...

@app.task(name="pack", unique=True)
def pack(parcel: Parcel, team: Team, more: dict[str, int], **rest: int) -> None: ...

with app:
    job = app.jobs.submit("ship", *call, job_id="parcel-1", **weights)
    unique = pack.unique_call(call, weights, tenant=None)
    print(job.id, app.jobs.get(job.id).id, unique.name)
"""


@pytest.mark.parametrize("content_type", ["json", pytest.param("msgpack", marks=pytest.mark.matrix)])
def test_equal_calls_of_several_processes_are_one_job_and_one_key(tmp_path: Path, content_type: str) -> None:
    script = tmp_path / "shop.py"
    script.write_text(_SHOP)
    seen: set[str] = set()
    for seed, order in (("1", "1"), ("2", "-1")):
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "jobs.db"), order, content_type],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)

    assert len(seen) == 1
