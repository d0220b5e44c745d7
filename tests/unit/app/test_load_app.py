import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskmq.errors import AppNotFound
from taskmq.load_app import load_app

_ONE = "from taskmq import TaskMQ\napp = TaskMQ('memory://x')\n"
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module named `loaded...` into the working directory, which is fresh and not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(path: str, content: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    yield write
    for name in [name for name in sys.modules.copy() if name.startswith("loaded")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("path", "target", "full"),
    [
        ("loaded_one.py", "loaded_one:app", "loaded_one:app"),
        ("loaded_one.py", "loaded_one", "loaded_one:app"),
        ("loaded_one.py", "loaded_one.py", "loaded_one:app"),
        ("loaded_one.py", "./loaded_one.py", "loaded_one:app"),
        ("loaded_one.py", "./loaded_one.py:app", "loaded_one:app"),
        ("loaded_pkg/inner.py", "loaded_pkg.inner", "loaded_pkg.inner:app"),
        ("loaded_folder/loaded_inner.py", "loaded_folder/loaded_inner.py", "loaded_inner:app"),
        ("loaded_pkg/__init__.py", "loaded_pkg", "loaded_pkg:app"),
        ("loaded-with-dashes.py", "loaded-with-dashes.py", "loaded-with-dashes:app"),
    ],
)
def test_an_app_is_found_in_the_working_directory(write: Write, path: str, target: str, full: str) -> None:
    write(path, _ONE)

    app, name = load_app(target)

    assert (app.sessions.url, name) == ("memory://x", full)
    assert load_app(name)[0] is app


def test_a_file_inside_a_package_is_imported_as_a_module_of_the_package(write: Write) -> None:
    write("loaded_pkg/__init__.py", "")
    write("loaded_pkg/inner/__init__.py", "")
    write("loaded_pkg/inner/shop.py", _ONE)

    assert load_app("loaded_pkg/inner/shop.py:app")[1] == "loaded_pkg.inner.shop:app"


def test_a_module_with_several_apps_requires_the_name_of_one(write: Write) -> None:
    write("loaded_two.py", "from taskmq import TaskMQ\na = TaskMQ('memory://a')\nb = TaskMQ('memory://b')\n")

    with pytest.raises(
        AppNotFound, match=r"^'loaded_two': the module must contain exactly one app.*; its apps: a, b$"
    ):
        load_app("loaded_two")
    assert load_app("loaded_two:b")[0].sessions.url == "memory://b"


def test_one_app_under_two_names_counts_as_one_app(write: Write) -> None:
    write("loaded_alias.py", f"{_ONE}celery = app\n")

    assert load_app("loaded_alias")[1] == "loaded_alias:app"


def test_an_app_may_be_an_attribute_of_another_object(write: Write) -> None:
    write("loaded_nested.py", "from taskmq import TaskMQ\nclass Shop:\n    app = TaskMQ('memory://x')\n")

    assert load_app("loaded_nested:Shop.app")[1] == "loaded_nested:Shop.app"
    with pytest.raises(AppNotFound, match=r"exactly one app.*its apps: none$"):
        load_app("loaded_nested")


@pytest.mark.parametrize("attribute", ["", "other", "TaskMQ", "app.sessions.url", "app.nothing.more", "nothing.app"])
def test_an_attribute_that_is_not_an_app_is_reported_with_the_available_apps(write: Write, attribute: str) -> None:
    write("loaded_one.py", f"{_ONE}other = 3\n")

    with pytest.raises(AppNotFound, match=rf"loaded_one has no app called '{attribute}'; its apps: app$"):
        load_app(f"loaded_one:{attribute}")


@pytest.mark.parametrize(
    ("target", "missing"),
    [
        ("loaded_nowhere", "loaded_nowhere"),
        ("loaded_nowhere:app", "loaded_nowhere"),
        ("loaded_nowhere.inner:app", "loaded_nowhere"),
        ("loaded_one.inner:app", "loaded_one.inner"),
        ("some words", "some words"),
    ],
)
def test_a_missing_module_is_named(write: Write, target: str, missing: str) -> None:
    write("loaded_one.py", _ONE)

    with pytest.raises(AppNotFound, match=rf"^'{target}': module '{missing}' not found; use MODULE:ATTRIBUTE$"):
        load_app(target)


def test_an_app_name_with_a_leading_dot_is_reported_in_full(write: Write) -> None:
    write("loaded_dotted.py", _ONE)

    with pytest.raises(AppNotFound, match=r"use MODULE:ATTRIBUTE: did you mean 'loaded_dotted:app'\?$"):
        load_app("loaded_dotted.app")


@pytest.mark.parametrize("target", ["", ":", ":app", ".", "..", ".app:app", "a..b:app"])
def test_an_invalid_module_name_is_refused(write: Write, target: str) -> None:
    with pytest.raises(AppNotFound, match=r"is not a module name; use MODULE:ATTRIBUTE$"):
        load_app(target)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("import loaded_missing_dependency", ModuleNotFoundError),
        ("import loaded_broken.missing", ModuleNotFoundError),
        ("raise ModuleNotFoundError('by hand')", ModuleNotFoundError),
        ("from taskmq import Nothing", ImportError),
        ("raise ValueError('broken')", ValueError),
        ("raise TypeError('broken')", TypeError),
        ("import taskmq; raise taskmq.InvalidOption('broken')", Exception),
        ("1 +", SyntaxError),
    ],
)
def test_an_error_inside_the_module_is_raised_unchanged(write: Write, content: str, error: type[Exception]) -> None:
    write("loaded_broken.py", content)

    with pytest.raises(error) as caught:
        load_app("loaded_broken:app")
    assert not isinstance(caught.value, AppNotFound)


def test_the_working_directory_is_put_first_on_the_import_path_and_only_once(write: Write, tmp_path: Path) -> None:
    write("loaded_one.py", _ONE)

    load_app("loaded_one")
    load_app("loaded_one")

    assert sys.path[0] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_a_target_may_be_a_file_path_below_the_working_directory(write: Write, tmp_path: Path) -> None:
    write("loaded_pkg/__init__.py", "")
    write("loaded_pkg/inner.py", _ONE)

    _, full = load_app(str(tmp_path / "loaded_pkg" / "inner.py"))

    assert full == "loaded_pkg.inner:app"


@pytest.mark.parametrize("target", ["../loaded_app.py", "/loaded_app.py:app", "loaded_app.py"])
def test_a_missing_file_is_refused(write: Write, target: str) -> None:
    with pytest.raises(AppNotFound, match=rf"^'{target}': file \S*loaded_app.py not found; use"):
        load_app(target)


def test_a_target_may_be_a_file_outside_the_working_directory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("loaded_elsewhere.py", _ONE)
    write("here/other.py", "")
    monkeypatch.chdir(tmp_path / "here")

    assert load_app("../loaded_elsewhere.py")[1] == "loaded_elsewhere:app"
