"""Task names in files that are run as programs: equal to those of a worker's import. Real processes."""

import copy
import pickle
import subprocess
import sys
import zipapp
from pathlib import Path

import msgspec
import pytest

from taskmq import RetryPolicy, TaskMQ, task
from tests.cli.kit import environment

_SHOP = """\
import sys
from taskmq import task

@task
def sell() -> None: ...

if __name__ == "__main__":
    print(sell.name, *sys.argv[1:])
"""

_POOL = """\
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from taskmq import TaskMQ

app = TaskMQ("memory://shop")

@app.task
def double(number: int) -> int:
    return 2 * number

def name(number: int) -> str:
    return double.name

if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            print(method, *pool.map(name, [1]), *pool.map(double, [3]))
"""


def _run(folder: Path, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder with a program, alone, in a folder, in a package and in a subpackage."""
    for file in ("shop.py", "sub/shop.py", "pkg/shop.py", "pkg/inner/shop.py", "pkg/__main__.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(_SHOP)
    for file in ("pkg/__init__.py", "pkg/inner/__init__.py"):
        (tmp_path / file).touch()
    return tmp_path


_LATER = pytest.mark.nightly(
    "tests/unit/tasks/test_program_names.py::test_a_task_is_named_by_its_file_however_it_is_run"
)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("shop.py",), "shop.sell"),
        (("pkg/inner/shop.py",), "pkg.inner.shop.sell"),
        (("-m", "pkg.inner.shop"), "pkg.inner.shop.sell"),
        (("-m", "cProfile", "-o", "figures", "-m", "sub.shop"), "sub.shop.sell"),
        *(
            pytest.param(*each, marks=_LATER)
            for each in (
                (("-m", "shop"), "shop.sell"),
                (("sub/shop.py",), "shop.sell"),
                (("-m", "sub.shop"), "sub.shop.sell"),
                (("pkg/shop.py",), "pkg.shop.sell"),
                (("-m", "pkg"), "pkg.__main__.sell"),
                (("-m", "cProfile", "-o", "figures", "shop.py"), "shop.sell"),
                (("-m", "profile", "-o", "figures", "shop.py"), "shop.sell"),
                (("-m", "trace", "--count", "--coverdir", "counts", "pkg/shop.py"), "pkg.shop.sell"),
                (("-m", "pdb", "-c", "continue", "-c", "quit", "shop.py"), "shop.sell"),
                (("-c", "import runpy; runpy.run_path('shop.py', run_name='__main__')"), "shop.sell"),
                (("-c", "import runpy; runpy.run_module('sub.shop', run_name='__main__')"), "sub.shop.sell"),
            )
        ),
    ],
    ids=str,
)
def test_a_task_is_named_by_its_file_however_it_is_run(folder: Path, arguments: tuple[str, ...], name: str) -> None:
    done = _run(folder, *arguments)

    assert name in done.stdout.split()
    assert "RuntimeWarning: task" not in done.stderr


@pytest.mark.parametrize(
    "path",
    ["pkg/inner/shop.py", *(pytest.param(each, marks=_LATER) for each in ("shop.py", "sub/shop.py", "pkg/shop.py"))],
)
def test_a_worker_has_the_task_names_that_the_program_sends(folder: Path, path: str) -> None:
    (folder / path).write_text(
        f"from taskmq import TaskMQ\napp = TaskMQ('memory://shop', include=[__name__])\n{_SHOP}"
    )
    program = f"from taskmq.load_app import load_app\nprint(*load_app({f'{path}:app'!r})[0].tasks)"

    assert _run(folder, "-c", program).stdout == _run(folder, path).stdout


def test_spawned_processes_know_a_task_by_its_name_and_call_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_POOL)

    assert _run(tmp_path, "shop.py").stdout.splitlines() == [
        "spawn shop.double 6",
        "forkserver shop.double 6",
        "fork shop.double 6",
    ]


_WARNED = pytest.mark.nightly(
    "tests/unit/tasks/test_program_names.py::test_a_task_that_no_worker_can_import_causes_a_warning"
)


@pytest.mark.parametrize("how", ["-c", *(pytest.param(each, marks=_WARNED) for each in ("stdin", "exec", "archive"))])
def test_a_task_that_no_worker_can_import_causes_a_warning(folder: Path, how: str) -> None:
    text = None
    match how:
        case "-c":
            arguments = ["-c", _SHOP]
        case "stdin":
            arguments, text = ["-"], _SHOP
        case "exec":
            arguments = ["-c", "exec(open('shop.py').read())"]
        case _:
            zipapp.create_archive(folder / "pkg", folder / "pkg.pyz")
            arguments = ["pkg.pyz"]

    done = _run(folder, *arguments, text=text)

    assert done.stdout.split()[0] == "__main__.sell"
    assert "RuntimeWarning: task '__main__.sell' is named after a program that no worker can import" in done.stderr
    assert "@app.task(name=...)" in done.stderr


def test_a_task_with_an_explicit_name_causes_no_warning(tmp_path: Path) -> None:
    program = "from taskmq import task\n@task(name='shop.sell')\ndef sell() -> None: ...\nprint(sell.name)"

    done = _run(tmp_path, "-W", "error", "-c", program)

    assert (done.stdout, done.stderr) == ("shop.sell\n", "")


@task
def price(item: int) -> int:
    """Price an item, as a task of this module."""
    return item + 1


def test_a_task_is_pickled_by_reference() -> None:
    assert pickle.loads(pickle.dumps(price)) is price


def test_a_copy_of_a_task_is_a_separate_task() -> None:
    copied = copy.copy(price)
    copied.plan = msgspec.structs.replace(price.plan, retry=RetryPolicy(max_attempts=7))

    assert copied.name == price.name
    assert price.plan.retry == RetryPolicy()


def test_a_task_without_a_module_attribute_cannot_be_pickled() -> None:
    app = TaskMQ("memory://shop")

    @app.task
    def local() -> None: ...

    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(local)
