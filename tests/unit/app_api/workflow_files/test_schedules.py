"""Schedules that follow the current version of a workflow."""

import pytest

from taskmq import InvalidOption
from taskmq.api.schedules import PutScheduleBody
from taskmq.api.workflows.definitions import WorkflowBody
from taskmq.app_api.app_api import AppApi
from taskmq.cli.operator import Operator, OperatorApi
from taskmq.errors import NotPermitted, ScheduleNotFound
from taskmq.model.identity import Permission
from tests.unit.workflow.shop import Shop

pytestmark = pytest.mark.real_time

_STEPS = "steps: {a: {task: named, args: ['${params.name}']}}"
_PARAMS = "params: {name: {type: string}}"
_DAILY = f"schedule: {{cron: '@daily', tz: Europe/Berlin, overlap: skip, params: {{name: x}}}}\n{_PARAMS}\n{_STEPS}"
_HOURLY = f"schedule: {{every: 1h, params: {{name: y}}}}\n{_PARAMS}\n{_STEPS}"
_NONE = f"{_PARAMS}\n{_STEPS}"


async def _put(api: AppApi, text: str, *, dry_run: bool = False) -> str:
    return (await api.workflows.put("nightly", WorkflowBody(text=text, dry_run=dry_run))).version


async def _rule(api: AppApi) -> str:
    """Return the rule of the workflow's schedule; "" if it has none."""
    try:
        return (await api.schedules.get("nightly")).rule
    except ScheduleNotFound:
        return ""


async def test_a_file_creates_changes_and_removes_the_schedule_of_its_workflow() -> None:
    shop = Shop()
    async with shop.app:
        api = OperatorApi(shop.app)
        await _put(api, _DAILY, dry_run=True)
        assert await _rule(api) == ""
        await _put(api, _DAILY)
        made = await api.schedules.get("nightly")
        await api.schedules.pause("nightly", note="holidays")
        await _put(api, _HOURLY)
        changed = await api.schedules.get("nightly")
        await _put(api, _NONE)

        assert (made.starts, made.tz, made.overlap) == ("workflow nightly", "Europe/Berlin", "skip")
        assert (changed.rule, changed.overlap, changed.note) == ("every hour", "allow", "holidays")
        assert await _rule(api) == ""


async def test_the_schedule_follows_the_current_version() -> None:
    shop = Shop()
    async with shop.app:
        api = OperatorApi(shop.app)
        first, last = await _put(api, _DAILY), await _put(api, _NONE)

        await _put(api, _DAILY)
        assert await _rule(api) == ""
        await api.workflows.activate("nightly", first)
        assert await _rule(api) == "at 00:00 every day, Europe/Berlin time"
        await api.workflows.activate("nightly", last)
        assert await _rule(api) == ""


async def test_a_schedule_that_no_file_made_is_kept() -> None:
    shop = Shop()
    async with shop.app:
        api = OperatorApi(shop.app)
        await api.schedules.put("nightly", PutScheduleBody(task="named", args=["x"], every="2h"))

        await _put(api, _NONE)
        for dry_run in (True, False):
            with pytest.raises(InvalidOption, match="a schedule 'nightly' exists that no workflow file made"):
                await _put(api, _DAILY, dry_run=dry_run)

        assert await _rule(api) == "every 2 hours"
        assert len(await api.workflows.versions("nightly")) == 1


async def test_a_schedule_of_the_code_is_kept() -> None:
    shop = Shop()

    @shop.app.every("3h")
    @shop.app.task(name="hello")
    async def hello() -> None: ...

    async with shop.app:
        api = OperatorApi(shop.app)
        text = _DAILY.replace("schedule", "workflow: hello\nschedule", 1)

        with pytest.raises(InvalidOption, match="a schedule 'hello' exists that no workflow file made"):
            await api.workflows.put("hello", WorkflowBody(text=text))


class _Restricted(Operator):
    def may(self, permission: Permission, tenant: str | None) -> bool:
        return permission is not Permission.SCHEDULES_CHANGE and super().may(permission, tenant)


async def test_a_caller_who_may_not_change_schedules_cannot_do_it_by_a_file() -> None:
    shop = Shop()
    async with shop.app:
        api = OperatorApi(shop.app)
        restricted = AppApi(shop.app, _Restricted(None), administration=lambda: pytest.fail("not needed"))
        version = await _put(api, _DAILY)

        assert await _put(restricted, _DAILY) == version
        for text in (_HOURLY, _NONE):
            with pytest.raises(NotPermitted, match=r"schedules\.change"):
                await _put(restricted, text)

        assert await _rule(api) == "at 00:00 every day, Europe/Berlin time"
