"""`taskmq worker`: valid and invalid flags."""

import inspect

import pytest

from taskmq.cli.config_options import config_values
from taskmq.cli.processes.worker import _queues, worker
from taskmq.errors import InvalidOption
from taskmq.worker.config import WorkerConfig
from taskmq.worker.config_option import options_of


def test_queues_are_named_with_their_shares_and_slots() -> None:
    names, slots, shares = _queues("images=4, mail*3,bills*2=1,rest,")

    assert names == ("images", "mail", "bills", "rest")
    assert slots == {"images": 4, "bills": 1}
    assert shares == {"mail": 3, "bills": 2}
    assert _queues("") == ((), {}, {})


@pytest.mark.parametrize("text", ["images=", "images=0", "images=x", "images*", "images*-1", "images*2=many"])
def test_shares_and_slots_are_whole_numbers_from_one(text: str) -> None:
    with pytest.raises(InvalidOption, match="with a share and slots"):
        _queues(text)


# Fields without their own option: set by --queues and --processes, or not at all.
_WITHOUT = {
    "queues", "queue_slots", "queue_shares", "processes", "process_slots", "unknown_attempts", "unknown_delay",
}  # fmt: skip


def test_every_field_of_the_config_is_an_option_or_a_listed_exception() -> None:
    assert set(options_of(WorkerConfig)) == set(WorkerConfig.__struct_fields__) - _WITHOUT


def test_the_defaults_in_the_help_are_those_of_the_config() -> None:
    parameters = inspect.signature(worker).parameters
    given = {name: parameters[name].default for name in options_of(WorkerConfig)}

    assert WorkerConfig(**config_values(WorkerConfig, given)) == WorkerConfig()
    assert parameters["result_limit"].default == "16M"
    assert parameters["weights"].default == "16:4:1"
    assert parameters["concurrency"].default is parameters["grace"].default is None


def test_a_flag_is_parsed_like_its_config_field() -> None:
    given = {"weights": "3:2:1", "lease": "2m", "result_limit": "1K", "resources": "cpu=2", "burst": True}

    assert config_values(WorkerConfig, given) == {
        "weights": (3, 2, 1),
        "lease": 120.0,
        "result_limit": 1024,
        "resources": {"cpu": 2.0},
        "burst": True,
    }


@pytest.mark.parametrize(
    ("field", "written", "value", "rule"),
    [
        ("concurrency", 0, 0, "at least 1"),
        ("prefetch", 0, 0, "at least 1"),
        ("max_tasks_per_child", 0, 0, "at least 1"),
        ("max_crashes", 1, 1, "at least 2, or 0 for no limit"),
        ("lease", "0s", 0.0, "more than 0 seconds"),
        ("starvation_limit", "0s", 0.0, "more than 0 seconds"),
    ],
)
def test_an_invalid_value_is_refused_by_the_name_of_its_option(
    field: str, written: object, value: object, rule: str
) -> None:
    with pytest.raises(InvalidOption, match=f"^--{field.replace('_', '-')}: {rule}$"):
        config_values(WorkerConfig, {field: written})
    with pytest.raises(InvalidOption, match=f"^{field}={value}: {rule}$"):
        WorkerConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["16:4", "16:4:0", "a:b:c", ""])
def test_weights_are_three_numbers_from_one(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"^--weights .* three numbers from 1"):
        config_values(WorkerConfig, {"weights": text})
