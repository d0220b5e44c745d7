import asyncio
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from taskmq import (
    Context,
    DuplicateTask,
    InvalidOption,
    InvalidSetting,
    Job,
    JobState,
    TaskMQ,
    UnsupportedFeature,
    task,
)
from taskmq.contracts.stores import ResultRecord
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.topology import WorkQueue
from taskmq.model.values.wire_form import encode_value
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.triggers import Every
from taskmq.testing import FakeClock
from tests.unit.app_kit import message, new_url


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    with TaskMQ(new_url(), clock=FakeClock()) as app:
        yield app


@pytest.fixture(autouse=True)
def _configure_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TASKMQ_URL", "TASKMQ_STATE"):
        monkeypatch.delenv(name, raising=False)


def sell() -> int:
    return 1


def buy(item: str = "") -> None: ...


def test_an_app_knows_its_tasks_by_name(app: TaskMQ) -> None:
    one, two = app.task(sell), app.task(name="other")(sell)

    assert app.tasks == {f"{__name__}.sell": one, "other": two}


def test_a_duplicate_task_name_is_refused_and_the_error_names_both_functions(app: TaskMQ) -> None:
    app.task(name="t")(sell)

    both = f"by sell in {__name__} and by buy in {__name__}"

    with pytest.raises(DuplicateTask, match=rf"^task 't' is defined twice: {both}; give one of them a name=$"):
        app.task(name="t")(buy)
    assert app.tasks["t"].function is sell


def test_two_apps_may_have_tasks_of_the_same_name(app: TaskMQ) -> None:
    other = TaskMQ(new_url())

    assert app.task(sell).name == other.task(sell).name


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_including_a_module_binds_its_tasks_and_nothing_else(app: TaskMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    unbound, other = task(sell), TaskMQ(new_url())
    foreign = other.task(buy)
    module = _module(monkeypatch, "shop_tasks", sell=unbound, alias=unbound, foreign=foreign, number=3)

    app.include(module)

    assert app.tasks == {unbound.name: unbound}
    assert unbound.services.producer is app.producer
    assert foreign.services.producer is other.producer


def test_a_module_may_be_included_by_name_and_repeatedly(app: TaskMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    unbound = task(sell)
    module = _module(monkeypatch, "shop_tasks", sell=unbound)

    app.include("shop_tasks", module)
    app.include("shop_tasks")

    assert list(app.tasks) == [unbound.name]


def test_configured_modules_are_imported_when_the_tasks_are_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("late_one", "late_two"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text("from taskmq import task\n@task\ndef sell() -> None: ...\n")
    app = TaskMQ(new_url(), include=["late_one", "late_two"])
    before = {"late_one", "late_two"} & sys.modules.keys()

    assert sorted(app.tasks) == ["late_one.sell", "late_two.sell"]
    assert before == set()
    assert app.tasks["late_one.sell"].services.producer is app.producer


def test_an_included_task_is_sent_like_any_other(app: TaskMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    unbound = task(queue="sales")(sell)
    app.include(_module(monkeypatch, "shop_tasks", sell=unbound))

    job = unbound.send()

    assert message(app, "sales").envelope.id == job.id


def test_a_duplicate_name_of_an_included_task_is_refused_too(app: TaskMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    app.task(name="t")(sell)

    with pytest.raises(DuplicateTask, match=r"'t' is defined twice"):
        app.include(_module(monkeypatch, "shop_tasks", buy=task(name="t")(buy)))


def test_tasks_without_a_queue_use_the_default_queue() -> None:
    app = TaskMQ(new_url(), default_queue="shop")

    assert app.task(name="a")(sell).queue == "shop"
    assert app.task(name="b", queue="sales")(sell).queue == "sales"
    assert app.task(name="c", queue="default")(sell).queue == "default"


def test_the_queues_of_an_app_are_those_of_its_tasks(app: TaskMQ) -> None:
    app.task(name="a", queue="z")(sell)
    app.task(name="b")(sell)
    app.task(name="c")(sell)

    assert app.tasks.queues == [WorkQueue("default"), WorkQueue("z")]


def test_a_schedule_decorator_leaves_the_task_unchanged(app: TaskMQ) -> None:
    @app.every("30s")
    @app.task(queue="sales")
    def tick() -> int:
        return 1

    assert app.schedules == {tick.name: ScheduleEntry(tick.name, tick, Every(30_000))}
    assert app.tasks == {tick.name: tick}
    assert tick() == 1


def test_one_task_may_have_several_named_schedules(app: TaskMQ) -> None:
    ticking = app.every(timedelta(hours=1), name="hourly")(app.every(5, name="often")(app.task(sell)))

    assert {name: entry.trigger for name, entry in app.schedules.items()} == {
        "often": Every(5000),
        "hourly": Every(3_600_000),
    }
    assert {entry.task for entry in app.schedules.values()} == {ticking}


def test_a_schedule_name_belongs_to_one_schedule(app: TaskMQ) -> None:
    app.every(5)(app.task(sell))

    with pytest.raises(InvalidOption, match=r"schedule '.*\.sell' is defined twice; give one of them a name="):
        app.every(6)(app.tasks[f"{__name__}.sell"])


def test_a_scheduled_task_is_called_without_arguments(app: TaskMQ) -> None:
    def needy(item: str) -> None: ...
    def content(ctx: Context, item: str = "") -> None: ...

    app.every(5)(app.task(content))
    with pytest.raises(InvalidOption, match=r"the task must run without arguments: .*'item' is missing"):
        app.every(5)(app.task(needy))
    assert len(app.schedules) == 1


@pytest.mark.parametrize("period", ["99ms", 0, -1, "soon"])
def test_an_invalid_period_is_refused_at_definition(app: TaskMQ, period: Any) -> None:
    with pytest.raises(InvalidOption, match=r"every="):
        app.every(period)


# Configuration of an app


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"content_type": "yaml"}, "content_type='yaml': must be 'json' or 'msgpack'"),
        ({"default_queue": "amq.x"}, "queue name 'amq.x'"),
        ({"send_timeout": -1}, "send_timeout=-1"),
        ({"result_ttl": "long"}, "result_ttl='long'"),
    ],
)
def test_an_invalid_setting_is_refused_when_the_app_is_created(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        TaskMQ(**options)


def test_the_content_type_is_a_short_word_in_code_and_a_media_type_on_the_wire() -> None:
    assert TaskMQ().producer.content_type == JSON
    assert TaskMQ(content_type="msgpack").producer.content_type == MSGPACK


def test_an_app_without_configuration_is_embedded(tmp_path: Path) -> None:
    app = TaskMQ()

    assert (app.sessions.url, app.sessions.state_url) == ("local://.taskmq", "local://.taskmq")
    assert app.sessions.settings.origin == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "state", "expected"),
    [
        ("memory://x", None, "memory://x"),
        ("local://x", None, "local://x"),
        ("amqp://host/", None, None),
        ("amqp://host/", "redis://r/", "redis://r/"),
        ("memory://x", "memory://y", "memory://y"),
    ],
)
def test_an_embedded_broker_brings_its_own_state(url: str, state: str | None, expected: str | None) -> None:
    assert TaskMQ(url, state=state).sessions.state_url == expected


def test_configure_overrides_code_and_code_overrides_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taskmq.toml").write_text('url = "memory://file"\nstate = "memory://file"\ngrace = "3s"\n')
    by_file = TaskMQ()
    from_file = (by_file.sessions.url, by_file.sessions.settings.state, by_file.sessions.settings.grace)
    monkeypatch.setenv("TASKMQ_URL", "memory://environment")
    by_environment = TaskMQ().sessions.url
    by_code = TaskMQ("memory://code")
    from_code = by_code.sessions.url
    by_code.sessions.configure(url="memory://flag")

    assert from_file == ("memory://file", "memory://file", "3s")
    assert by_environment == "memory://environment"
    assert from_code == "memory://code"
    assert by_code.sessions.url == "memory://flag"
    assert by_code.sessions.settings.state == "memory://file"
    assert by_code.sessions.settings.origin == {
        "url": "code",
        "state": str(tmp_path / "taskmq.toml"),
        "grace": str(tmp_path / "taskmq.toml"),
    }


def test_configure_changes_only_the_given_settings() -> None:
    app = TaskMQ("memory://a", state="memory://b")

    app.sessions.configure(name="shop")
    unchanged = (app.sessions.url, app.sessions.state_url)
    app.sessions.configure(state="memory://c")

    assert unchanged == ("memory://a", "memory://b")
    assert (app.sessions.url, app.sessions.state_url) == ("memory://a", "memory://c")


def test_configure_is_refused_once_the_app_is_in_use(app: TaskMQ) -> None:
    app.task(sell).send()

    with pytest.raises(InvalidOption, match=r"configure\(\) after the app has been used"):
        app.sessions.configure(url="memory://other")


def test_an_unknown_setting_is_reported_on_first_use_of_the_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TASKMQ_ULR", "amqp://user:hunter2@host/")
    app = TaskMQ()
    defined = app.task(sell)

    with pytest.raises(InvalidSetting, match=r"\$TASKMQ_ULR: unknown setting 'ulr'; did you mean 'url'\?") as caught:
        defined.send()
    assert "hunter2" not in str(caught.value)


def test_an_unsupported_broker_url_is_reported_by_the_first_send() -> None:
    defined = TaskMQ("kafka://user:hunter2@host/").task(sell)

    with pytest.raises(InvalidSetting, match=r"no installed broker serves kafka://") as caught:
        defined.send()
    assert "hunter2" not in str(caught.value)


def _store(app: TaskMQ, job: Job[Any], value: object) -> None:
    async def put() -> None:
        async with app:
            record = ResultRecord(
                job_id=job.id,
                task=job.task,
                state=JobState.SUCCEEDED,
                attempt=1,
                content_type=JSON,
                value=encode_value(value, JSON),
                finished=1,
            )
            await app.jobs.sent.results().put(record, ttl=60)

    asyncio.run(put())


def test_the_result_of_a_job_comes_from_the_state_of_the_app(app: TaskMQ) -> None:
    job = app.task(sell).send()
    before = job.state()
    _store(app, job, 7)

    assert before is JobState.QUEUED
    assert job.state() is JobState.SUCCEEDED
    assert job.result(timeout=5) == 7


def test_a_job_is_found_again_by_its_id(app: TaskMQ) -> None:
    job = app.task(sell).send()
    _store(app, job, {"a": [1]})

    again = app.job(job.id)

    assert again.result(timeout=5) == {"a": [1]}
    assert (again.id, again.task) == (job.id, "")


_USES: list[Callable[[Job[Any]], object]] = [
    lambda job: job.result(),
    lambda job: job.state(),
    lambda job: asyncio.run(_in_loop(job.aresult)),
    lambda job: asyncio.run(_in_loop(job.astate)),
]


async def _in_loop(call: Callable[[], Any]) -> Any:
    return await call()


@pytest.mark.parametrize("use", _USES)
def test_results_without_a_state_are_refused_with_a_remedy(use: Callable[[Job[Any]], object]) -> None:
    with (
        TaskMQ("amqp://localhost:1/") as app,
        pytest.raises(UnsupportedFeature, match=r"state='redis://.*TASKMQ_STATE"),
    ):
        use(app.job("7"))


def test_a_module_whose_import_failed_is_imported_again_on_the_next_use() -> None:
    app = TaskMQ(new_url(), include=["there_is_no_such_module"])

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
            len(app.tasks)
