"""`taskmq workflow validate` and `taskmq workflow schema`."""

from pathlib import Path

import jsonschema_rs

from tests.cli.kit import Here

_GOOD = "workflow: nightly\nsteps:\n  double: {task: shop.double, with: {number: 2}}\n"
_BAD = (
    "workflow: weekly\nsteps:\n  double: {task: shop.double, with: {numbr: 2}}\n  other: {task: t, needs: [dubble]}\n"
)


def test_files_are_validated_without_an_app_and_without_a_server(home: Path, taskmq: Here) -> None:
    (home / "good.yaml").write_text(_GOOD)
    (home / "good.json").write_text('{"workflow": "w", "steps": {"a": {"task": "t"}}}')
    (home / "bad.yaml").write_text(_BAD)

    good = taskmq("workflow", "validate", "good.yaml", "good.json")
    bad = taskmq("workflow", "validate", "good.yaml", "bad.yaml")

    assert (good.code, good.out) == (0, "")
    assert good.err == "2 of 2 files are valid; tasks were not checked: name an app with --app\n"
    assert (bad.code, bad.out) == (
        1,
        "bad.yaml: line 4, step other, needs: no step 'dubble': did you mean 'double'?\n",
    )
    assert bad.err == "1 of 2 files are valid; tasks were not checked: name an app with --app\n"


def test_with_an_app_tasks_and_arguments_are_checked(shop: Path, taskmq: Here) -> None:
    (shop / "good.yaml").write_text(_GOOD)
    (shop / "bad.yaml").write_text(_BAD.replace("dubble", "double"))

    good = taskmq("--app", "shop:app", "workflow", "validate", "good.yaml")
    bad = taskmq("--app", "shop:app", "workflow", "validate", "bad.yaml", "-o", "json")

    assert (good.code, good.err) == (0, "1 of 1 files are valid\n")
    assert bad.code == 1
    (row,) = bad.data
    assert row["faults"] == [
        "line 3, step double, with: task shop.double needs 'number'",
        "line 3, step double, with: unknown field `numbr`: did you mean 'number'?",
        "line 4, step other, task: no task 't': known: shop.double, shop.fail, shop.sleep, shop.tick",
    ]


def test_a_file_that_cannot_be_read_is_a_usage_error(home: Path, taskmq: Here) -> None:
    found = taskmq("workflow", "validate", "missing.yaml")

    assert (found.code, found.err) == (2, "taskmq: missing.yaml: cannot be read: No such file or directory\n")


def test_the_schema_is_printed_for_editors(home: Path, taskmq: Here) -> None:
    found = taskmq("workflow", "schema")

    validator = jsonschema_rs.Draft202012Validator(found.data)
    assert validator.is_valid({"workflow": "w", "steps": {"a": {"task": "t"}}})
    assert not validator.is_valid({"workflow": "w"})
