"""Lists of workflows: by name, state, tenant and time, page by page."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Unpack

import pytest

from taskmq import InvalidOption, TaskMQ, chain
from taskmq.operations.workflows import flow_of
from taskmq.testing import FakeClock
from taskmq.workflow.workflows import WorkflowFilter, WorkflowLine, Workflows, read_states
from tests.unit.app_kit import new_url
from tests.unit.workflow.state_flows import send_to_state


class Office:
    """An app whose workflows no worker runs; they are sent a second apart."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.app = TaskMQ(new_url(), clock=self.clock)

        @self.app.task(name="office.copy", queue="office")
        def copy(text: str) -> str:
            return text

        self._copy = copy

    def send(self, flow_id: str, *, name: str | None = None, tenant: str | None = None) -> int:
        sent = self.clock.now_ms()
        workflow = chain(self._copy.s("a"), self._copy.s())
        self.app.sessions.run_sync(
            send_to_state(workflow, flow_id=flow_id, name=name, tenant=tenant), instead="send_to_state"
        )
        self.clock.advance(1)
        return sent

    def at(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def list_lines(self, *, limit: int = 50, **which: Unpack[WorkflowFilter]) -> list[WorkflowLine]:
        found: list[WorkflowLine] = []
        after: str | None = None
        while True:
            page = self.app.workflows.list(**which, after=after, limit=limit)
            assert len(page.lines) <= limit
            found += page.lines
            if (after := page.after) is None:
                return found


@pytest.fixture
def office() -> Iterator[Office]:
    found = Office()
    with found.app:
        yield found


def test_workflows_are_listed_newest_first_with_their_names_and_progress(office: Office) -> None:
    sent = office.send("one")
    office.send("two", name="copies")
    flow_of(office.app, "two").cancel("not needed")

    second, first = office.list_lines()

    assert first == WorkflowLine(
        id="one", name="office.copy", state="running", cancelled=None, started=sent, nodes=2, unfinished=2
    )
    assert (second.name, second.state, second.cancelled, second.unfinished) == (
        "copies",
        "cancelled",
        "not needed",
        0,
    )


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_workflows_are_found_by_name_state_tenant_and_time_on_pages_of_any_size(office: Office, limit: int) -> None:
    office.send("a", name="day close")
    noon = office.at()
    office.send("b", name="day open", tenant="acme")
    office.send("c", tenant="acme")
    late = office.at()
    office.send("d", name="night close")
    flow_of(office.app, "a").cancel("x")

    def ids(**which: Unpack[WorkflowFilter]) -> list[str]:
        return [line.id for line in office.list_lines(limit=limit, **which)]

    assert ids() == ["d", "@acme:c", "@acme:b", "a"]
    assert ids(name="* close") == ["d", "a"]
    assert ids(name="office.copy") == ["@acme:c"]
    assert ids(states=frozenset({"running"}), name="* close") == ["d"]
    assert ids(states=read_states("cancelled, failed")) == ["a"]
    assert ids(tenant="acme") == ["@acme:c", "@acme:b"]
    assert ids(tenant="") == ["d", "a"]
    assert ids(since=noon, until=late) == ["@acme:c", "@acme:b"]


def test_a_page_searches_a_bounded_number_of_workflows(office: Office) -> None:
    workflows = Workflows(office.app.tasks["office.copy"].services, looked_at=4)
    for number in range(6):
        office.send(str(number), name="wanted" if number == 0 else "other")

    first = workflows.list(name="wanted", limit=2)
    last = workflows.list(name="wanted", after=first.after, limit=2)

    assert (first.lines, first.is_bounded) == ([], True)
    assert ([line.id for line in last.lines], last.after, last.is_bounded) == (["0"], None, False)


@pytest.mark.parametrize("cursor", ["1", ".a", "1.", "-1.a", "x.a", "\u0661.a", "9" * 16 + ".a", "1.\0"])
def test_an_invalid_cursor_is_refused(office: Office, cursor: str) -> None:
    with pytest.raises(InvalidOption, match="not a cursor"):
        office.app.workflows.list(after=cursor)


def test_an_invalid_workflow_state_is_refused(office: Office) -> None:
    for refused in (lambda: read_states("failed,done"), lambda: office.app.workflows.list(states=["done"])):  # type: ignore[list-item]
        with pytest.raises(InvalidOption, match="unknown workflow state 'done'"):
            refused()


def test_an_unknown_filter_field_is_refused_with_the_valid_ones(office: Office) -> None:
    with pytest.raises(InvalidOption, match=r"state= is not a field of a workflow filter: .*states"):
        office.app.workflows.list(state="failed")  # type: ignore[call-arg]


def test_times_need_a_zone_and_pages_need_rows(office: Office) -> None:
    naive = datetime(2027, 1, 31)  # noqa: DTZ001 - that is what is refused
    wrong: list[dict[str, Any]] = [{"since": naive}, {"until": naive}, {"limit": 0}]
    for refused in wrong:
        with pytest.raises(InvalidOption, match=next(iter(refused))):
            office.app.workflows.list(**refused)


def test_coroutines_list_workflows_too(office: Office) -> None:
    office.send("one")

    async def ids() -> list[str]:
        async with office.app:
            return [line.id for line in (await office.app.workflows.alist(tenant="")).lines]

    assert asyncio.run(ids()) == ["one"]
