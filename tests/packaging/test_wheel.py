"""The result of `pip install taskmq`: built, installed outside the repository, imported and type-checked there."""

import ensurepip
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import taskmq

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]
_PACKAGES = {
    "taskmq": _ROOT / "taskmq",
    **{
        init.parent.name: init.parent
        for folder in ("brokers", "contrib")
        for init in sorted((_ROOT / folder).glob("*/__init__.py"))
    },
}


# Both builds need the same files; a source distribution could lack some. Building that takes five times as long.
_BOTH_WHEELS = pytest.mark.parametrize(
    "source", ["direct_wheel", pytest.param("wheel", marks=pytest.mark.nightly("tests/packaging/test_wheel.py"))]
)


def _run(*command: object, cwd: Path) -> str:
    # A PYTHONPATH in the environment would hide the packages that the test has installed.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(*arguments: object, cwd: Path) -> None:
    _run(sys.executable, "-m", "build", "--no-isolation", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def direct_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the working tree."""
    folder = tmp_path_factory.mktemp("direct")
    _build("--wheel", "--outdir", folder, _ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def built_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and a wheel from that alone; return their folder."""
    folder = tmp_path_factory.mktemp("built")
    _build("--outdir", folder, _ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built_folder: Path) -> Path:
    (wheel,) = built_folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(direct_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with the wheel; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder)
    python = folder / "bin" / "python"
    # Run from its wheel: installing pip, and compiling unused modules, takes longer than everything else here.
    pip = _wheel_of_pip() / "pip"
    _run(python, pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", direct_wheel, cwd=folder)
    (site_packages,) = folder.glob("lib/*/site-packages")
    # A path file in there adds the folder, without the path files of that folder: not the repository.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def _wheel_of_pip() -> Path:
    """Return the wheel that environments get: Python's own, or that of Debian."""
    places = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next(wheel for place in places for wheel in place.glob("pip-*.whl"))


def _names(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


@_BOTH_WHEELS
def test_the_wheel_has_only_its_packages_at_the_top_level(source: str, request: pytest.FixtureRequest) -> None:
    wheel: Path = request.getfixturevalue(source)
    version = wheel.name.split("-")[1]

    assert {name.partition("/")[0] for name in _names(wheel)} == {*_PACKAGES, f"taskmq-{version}.dist-info"}


@_BOTH_WHEELS
def test_the_wheel_has_every_module_and_script_and_says_that_it_is_typed(
    source: str, request: pytest.FixtureRequest
) -> None:
    expected = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in _PACKAGES.items()
        for path in folder.rglob("*")
        if path.suffix in (".py", ".lua") or path.name == "py.typed"
    }

    found = {name for name in _names(request.getfixturevalue(source)) if ".dist-info/" not in name}

    assert {name for name in found if name.endswith((".py", ".lua", "py.typed"))} == expected
    assert {f"{name}/py.typed" for name in _PACKAGES} <= found
    assert [name for name in found if "__pycache__" in name or "/test_" in name] == []


@pytest.mark.nightly(
    "tests/packaging/test_wheel.py::test_the_wheel_has_every_module_and_script_and_says_that_it_is_typed"
)
def test_the_source_distribution_has_what_is_needed_to_build_and_to_test(built_folder: Path) -> None:
    (source,) = built_folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "taskmq/__init__.py", "tests/conftest.py"} <= names
    assert [name for name in names if name.startswith((".venv", ".git/", ".tools", "dist/"))] == []


def test_the_installed_packages_can_be_imported(python: Path, tmp_path: Path) -> None:
    names = ", ".join(_PACKAGES)
    where = _run(
        python,
        "-W",
        "error",
        "-c",
        f"import {names}\nfor package in ({names},): print(package.__file__)",
        cwd=tmp_path,
    ).split()

    assert len(where) == len(_PACKAGES)
    assert all(Path(file).is_relative_to(python.parents[1]) for file in where)


def test_the_installed_entry_points_can_be_loaded(python: Path, tmp_path: Path) -> None:
    program = """
from importlib.metadata import distribution
for point in distribution("taskmq").entry_points:
    point.load()
    print(point.group, point.name)
"""

    points = _run(python, "-c", program, cwd=tmp_path).splitlines()

    assert set(points) >= {
        "console_scripts taskmq",
        *(f"taskmq.brokers {scheme}" for scheme in ("amqp", "amqps", "local", "memory")),
        *(f"taskmq.states {scheme}" for scheme in ("local", "memory")),
    }


# Prints the modules that belong to no required package. Reading the metadata of all packages takes a second.
_FIND_EXTRAS = """
from importlib.metadata import packages_distributions, requires
from re import match

wanted = ["taskmq"]
for name in wanted:
    wanted += [
        match(r"[\\w.-]+", each)[0] for each in requires(name) or () if "extra ==" not in each
    ]
wanted = {each.lower().replace("_", "-") for each in wanted}
for module, names in packages_distributions().items():
    if not wanted & {each.lower().replace("_", "-") for each in names}:
        print(module)
"""
_ONLY_REQUIRED = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"{{name}} belongs to an extra", name=name)


sys.meta_path.insert(0, Missing())
"""


@pytest.mark.nightly("tests/packaging/test_wheel.py::test_the_installed_entry_points_can_be_loaded")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "folders",
    [
        ["taskmq_rabbitmq"],
        # Without a folder, it measures the standard library.
        [],
    ],
)
def test_the_demo_needs_no_package_of_an_extra(python: Path, tmp_path: Path, folders: list[str]) -> None:
    bare = tmp_path / "bare"
    venv.create(bare)
    (site_packages,) = bare.glob("lib/*/site-packages")
    (installed,) = python.parents[1].glob("lib/*/site-packages")
    (site_packages / "packages.pth").write_text(
        f"{installed}\n{sysconfig.get_path('purelib')}\nimport only_required\n"
    )
    missing = set(_run(python, "-c", _FIND_EXTRAS, cwd=tmp_path).splitlines())
    assert {"litestar", "redis"} <= missing
    (site_packages / "only_required.py").write_text(_ONLY_REQUIRED.format(missing=missing))

    paths = [installed / folder for folder in folders]
    printed = _run(bare / "bin" / "python", "-m", "taskmq", "demo", *paths, cwd=tmp_path)

    assert "jobs of the store gave the same results" in printed


def test_the_installed_command_shows_its_help(python: Path, tmp_path: Path) -> None:
    assert "worker" in _run(python.with_name("taskmq"), "--help", cwd=tmp_path)


_USER = """
from typing import assert_type

from taskmq import Context, Job, TaskMQ, task

app = TaskMQ("memory://")


@app.task(queue="images", timeout="30s")
async def thumbnail(photo_id: int, size: tuple[int, int] = (128, 128)) -> str:
    return str(photo_id)


@task
def sell(ctx: Context, item: str) -> int:
    return len(ctx.job_id + item)


assert_type(thumbnail.send(7), Job[str])
app.include(__name__)
assert_type(sell.send("a"), Job[int])
"""
_WRONG = """
thumbnail.send("7")
sell.send(Context.create_detached("t"), "a")
app.task(quue="x")
"""


def _type_check(python: Path, folder: Path, program: str) -> str:
    (folder / "shop.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable", str(python), "shop.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout + done.stderr


@pytest.mark.nightly("tests/typing")
def test_the_installed_types_find_only_the_mistakes_of_a_user(python: Path, tmp_path: Path) -> None:
    report = _type_check(python, tmp_path, _USER + _WRONG)

    errors = [line for line in report.splitlines() if " error: " in line]
    assert {line.rpartition("[")[2].rstrip("]") for line in errors} == {"arg-type", "call-arg", "call-overload"}
    assert min(int(line.split(":")[1]) for line in errors) > _USER.count("\n")
    (tmp_path / "shop.py").write_text(_USER)
    _run(python, "-W", "error", "shop.py", cwd=tmp_path)


@pytest.mark.campaign
def test_every_type_around_the_public_names_is_annotated(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("basedpyright")), "--verifytypes", "taskmq", "--ignoreexternal",
         "--outputjson"],
        cwd=tmp_path,
        # This mode uses the interpreter from here, not from --pythonpath.
        env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip

    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    homes = {"taskmq.errors", *(f"taskmq.{module}" for module in taskmq._HOMES.values())}
    of_homes = {
        symbol["name"]: [each["message"] for each in symbol["diagnostics"]]
        for symbol in symbols
        if any(symbol["name"].startswith(f"{home}.") for home in homes)
    }
    assert len(of_homes) > 100
    # `get = blocking(aget)` has the type of `aget`; names that only mention such a class are "partially unknown".
    unclear = {
        name
        for name, messages in of_homes.items()
        if any("missing type annotation" in message for message in messages) and _counterpart(name) not in of_homes
    }
    assert unclear == set()


def _counterpart(name: str) -> str:
    home, _, method = name.rpartition(".")
    return f"{home}.a{method}"
