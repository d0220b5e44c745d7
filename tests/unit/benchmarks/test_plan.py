"""The cells of a benchmark session."""

from typing import cast

from benchmarks.contender import WORK
from benchmarks.contenders import CONTENDERS
from benchmarks.goals import GOALS, judge
from benchmarks.ground import Ground
from benchmarks.plan import KINDS, Job, plan
from benchmarks.provision import folder_name

# A plan only names the server of its jobs.
_NOBODY = cast("Ground", None)


def _all(scale: float = 1.0) -> list[Job]:
    return plan(_NOBODY, CONTENDERS, WORK, KINDS, scale=scale)


def _of(work: str) -> set[tuple[str, str]]:
    return {(job.cell.contender, job.cell.kind) for job in _all() if job.work == work}


def test_no_two_cells_share_a_name() -> None:
    names = [job.cell.name for job in _all()]

    assert len(set(names)) == len(names)


def test_the_contenders_of_a_table_run_consecutively() -> None:
    works = [(job.work, job.cell.kind) for job in _all()]

    assert [pair for place, pair in enumerate(works) if place == 0 or works[place - 1] != pair] == list(
        dict.fromkeys(works)
    )


def test_every_goal_has_the_cells_it_needs() -> None:
    jobs = _all()
    for job in jobs:
        job.cell.runs.append(dict.fromkeys(_FIGURES, 2.0))

    unmeasured = [verdict.goal.work for verdict in judge([job.cell for job in jobs]) if not verdict.values]
    assert unmeasured == []
    assert len(GOALS) > 30


_FIGURES = (
    *("tasks_per_second", "worker_us", "p50_ms", "p99_ms", "resident_mb", "import_ms", "first_task_s"),
    *("delayed_tasks", "resident_growth_mb"),
)


def test_raw_clients_are_the_floors_of_sending_and_draining() -> None:
    for work in ("drain", "enqueue"):
        assert {("C", "quorum"), ("pika", "quorum"), ("aio-pika", "classic")} <= _of(work)
    assert not {name for name, _ in _of("latency")} & {"C", "pika", "aio-pika"}


def test_contenders_on_redis_appear_where_their_model_supports_the_workload() -> None:
    assert {("arq", "redis"), ("streaq", "redis")} <= _of("drain") & _of("enqueue") & _of("latency")


def test_every_kind_of_queue_includes_taskmq_beside_each_peer() -> None:
    for work in ("delayed", "scaling", "memory", "backlog"):
        kinds = _of(work)
        assert {("taskmq", "quorum"), ("taskmq", "classic"), ("dramatiq", "classic")} <= kinds
        assert ("celery", "classic") not in kinds


def test_a_single_contender_is_measured_alone() -> None:
    alone = [each for each in CONTENDERS if each.name == "celery"]
    cells = [job.cell for job in plan(_NOBODY, alone, ["latency"], ["quorum"], scale=1.0)]

    assert {cell.contender for cell in cells} == {"celery"}


def test_other_extras_need_another_environment() -> None:
    names = [folder_name(contender) for contender in CONTENDERS if contender.requires]

    assert len(set(names)) == len(names)
    assert all("[" not in name and "=" not in name for name in names)
