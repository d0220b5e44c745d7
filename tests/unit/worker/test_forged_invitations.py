"""Invitations without a scheduler: a worker publishes no report to their target, and declares no queue."""

import json

import pytest

from taskmq.model import headers as header
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import PARKING
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, working
from tests.unit.worker.staged import StagedApp, settle_loop

REPORTS = "taskmq.reports.shop.0"


def invitation(reports: str, task: str = "gated") -> bytes:
    store = {"id": "0190", "token": 1, "reports": reports}
    return json.dumps({"task": task, "id": "forged", "args": ["forged"], "store": store}).encode()


async def run_forged(app: StagedApp, gate: Gate, body: bytes, *, queue: str) -> str:
    """Let a worker consume the message; return the reason with which it was parked."""
    gate.open.set()
    await app.put(body, queue=queue, job_id="forged")

    async with working(app):
        for _ in range(50):
            await settle_loop()

    assert gate.started == []
    (parked,) = await app.messages(PARKING)
    assert app.story() == [f"confirmed {PARKING}", f"acked {queue}"]
    return str(parked.headers[header.REASON])


@pytest.mark.parametrize(
    "reports",
    [
        "",
        "victimq",
        "work",
        "work.dlq",
        "taskmq.parking",
        "taskmq.listener.web-1.17.abc",
        "taskmq.reports",
        "taskmq.reports.",
        "x.taskmq.reports.shop.0",
        "taskmq.reports.shop.0\n",
        f"taskmq.reports.{'x' * 241}",
        f"taskmq.reports.{'ä' * 121}",
    ],
)
@run_by(play)
async def test_an_invitation_with_a_foreign_reports_queue_is_parked(
    app: StagedApp, gate: Gate, /, reports: str
) -> None:
    reason = await run_forged(app, gate, invitation(reports), queue="work.jobs")

    assert "$.store.reports" in reason


@pytest.mark.parametrize("task", ["gated", "unknown"])
@pytest.mark.parametrize("queue", ["work", "work.p.high"])
@run_by(play)
async def test_an_invitation_outside_the_queue_of_invitations_is_parked(
    app: StagedApp, gate: Gate, /, queue: str, task: str
) -> None:
    reason = await run_forged(app, gate, invitation(REPORTS, task), queue=queue)

    assert "work.jobs" in reason


@pytest.mark.parametrize("name", ["shop.0", "a shop.17", "größe.3", "x" * 240, "ä" * 60])
def test_the_reports_queue_of_every_app_is_accepted(name: str) -> None:
    envelope = decode_envelope(invitation(f"taskmq.reports.{name}"))

    assert envelope.store is not None
    assert envelope.store.reports == f"taskmq.reports.{name}"
