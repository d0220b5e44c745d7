"""The pytest plugin, in separate runs of pytest."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_SHOP = """
    from taskmq import TaskMQ

    app = TaskMQ("amqp://nobody:secret@localhost:1/")
    other = TaskMQ("amqp://nobody:secret@localhost:1/")
    done = []

    @app.task
    async def sell(item: str, count: int = 1) -> int:
        if count < 1:
            raise ValueError(f"no {item}")
        done.append(item)
        return count

    @app.every("1h")
    @app.task
    def tick() -> None:
        done.append("tick")
"""

_TESTS = """
    import pytest
    import shop

    @pytest.fixture(autouse=True)
    def nothing_done():
        shop.done.clear()

    def test_first(taskmq_app):
        job = shop.sell.send("hat", 2)
        taskmq_app.assert_sent(shop.sell, "hat", count=2)
        taskmq_app.drain()
        assert job.result() == 2
        assert shop.done == ["hat"]

    def test_second(taskmq_app):
        assert taskmq_app.sent == []
        taskmq_app.advance("3h")
        assert shop.done == ["tick"] * 3

    async def use(taskmq_app):
        job = await shop.sell.asend("hat")
        await taskmq_app.adrain()
        assert await job.aresult() == 1

    def test_coroutines_without_a_plugin(taskmq_app):
        import asyncio
        asyncio.run(use(taskmq_app))
"""

# Passes only that to pytest.
_ALL_PLUGINS = "--verbosity=0"


def write(directory: Path, **files: str) -> None:
    """Write these files, whose names have __ for a dot."""
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(dedent(text))


def run(directory: Path, *arguments: str, **files: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest on these files, whose names have __ for a dot; with our plugin, or with all installed ones."""
    write(directory, **files)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASKMQ_", "PYTEST_"))}
    if _ALL_PLUGINS not in arguments:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        arguments = ("-p", "taskmq.pytest_plugin", *arguments)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--tb=native", *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_the_fixtures_of_a_folder_apply_to_its_tests")
@pytest.mark.parametrize(
    "files",
    [
        {"pyproject__toml": '[tool.taskmq]\napp = "shop:app"\n[tool.pytest.ini_options]\n'},
        {"conftest__py": "import pytest, shop\n@pytest.fixture\ndef taskmq_target():\n    return lambda: shop.app\n"},
    ],
    ids=["taskmq's settings", "a function"],
)
def test_the_app_is_found_and_each_test_uses_it_alone(tmp_path: Path, files: dict[str, str]) -> None:
    ran = run(tmp_path, "-q", shop__py=_SHOP, test_shop__py=_TESTS, **files)

    assert "3 passed" in ran.stdout, ran.stdout


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_the_fixtures_of_a_folder_apply_to_its_tests")
def test_the_app_of_pytests_settings_is_found_and_coroutines_run_under_anyio(tmp_path: Path) -> None:
    pytest.importorskip("anyio")
    test = (
        _TESTS
        + """
    @pytest.mark.anyio
    async def test_coroutines(taskmq_app):
        await use(taskmq_app)
        with pytest.raises(ValueError, match="no hat"):
            await shop.sell.asend("hat", 0)
            await taskmq_app.aadvance("2h")

    @pytest.fixture
    def anyio_backend():
        return "asyncio"
    """
    )
    settings = "[pytest]\ntaskmq_app = shop:app\n"
    ran = run(tmp_path, "-q", "-p", "anyio", shop__py=_SHOP, test_shop__py=test, pytest__ini=settings)

    assert "4 passed" in ran.stdout, ran.stdout


def test_a_failing_task_fails_its_test_with_the_line_of_the_task(tmp_path: Path) -> None:
    test = """
    import shop

    def test_it(taskmq_app):
        shop.sell.options(delay="1h").send("hat", 0)
        taskmq_app.drain()
    """
    ran = run(
        tmp_path,
        "--tb=short",
        "--show-capture=no",
        shop__py=_SHOP.replace("@app.task\n    async", "@app.task(retry=None)\n    async"),
        test_shop__py=test,
        pytest__ini="[pytest]\ntaskmq_app = shop:app\n",
    )

    assert ran.returncode == 1
    failure = ran.stdout[ran.stdout.index("= FAILURES") : ran.stdout.index("short test summary")]
    assert "test_shop.py:6: in test_it" in failure
    assert 'shop.py:11: in sell\n    raise ValueError(f"no {item}")' in failure
    # No frame of taskmq lies between the two.
    assert "taskmq/" not in failure


_TEST_OF_A_LIMIT = """
    import asyncio
    import pytest
    import shop

    @shop.app.task
    async def hang() -> None:
        await asyncio.Event().wait()

    def test_it(taskmq_app):
        hang.send()
        with pytest.raises(AssertionError, match="after 0.05 s of real time"):
            taskmq_app.drain()
"""


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_the_fixtures_of_a_folder_apply_to_its_tests")
def test_the_time_limit_of_a_drain_is_configurable(tmp_path: Path) -> None:
    settings = "[pytest]\ntaskmq_app = shop:app\ntaskmq_timeout = 50ms\n"
    ran = run(tmp_path, shop__py=_SHOP, test_limit__py=_TEST_OF_A_LIMIT, pytest__ini=settings)

    assert "1 passed" in ran.stdout, ran.stdout


_TEST_OF_A_STORE = """
    import shop

    def test_it(taskmq_app):
        job = shop.app.jobs.submit(shop.sell, "hat")
        taskmq_app.drain()
        assert job.result() == 1
"""


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_the_fixtures_of_a_folder_apply_to_its_tests")
def test_an_app_with_a_store_named_only_by_its_deployment_gets_one(tmp_path: Path) -> None:
    settings = "[pytest]\ntaskmq_app = shop:app\ntaskmq_store = true\n"
    ran = run(tmp_path, shop__py=_SHOP, test_store__py=_TEST_OF_A_STORE, pytest__ini=settings)

    assert "1 passed" in ran.stdout, ran.stdout


def test_the_fixtures_of_a_folder_apply_to_its_tests(tmp_path: Path) -> None:
    def conftest(name: str = "", value: str = "") -> str:
        fixtures = {"target": "shop.app"} | ({name: value} if name else {})
        return "import pytest, shop\n" + "".join(
            f"@pytest.fixture\ndef taskmq_{each}():\n    return {returned}\n" for each, returned in fixtures.items()
        )

    write(tmp_path / "found", conftest__py=conftest(), test_shop__py=_TESTS)
    write(tmp_path / "limited", conftest__py=conftest("timeout", "'50ms'"), test_limit__py=_TEST_OF_A_LIMIT)
    write(tmp_path / "stored", conftest__py=conftest("store", "True"), test_store__py=_TEST_OF_A_STORE)
    ran = run(tmp_path, "-q", shop__py=_SHOP)

    assert "5 passed" in ran.stdout, ran.stdout


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_the_fixtures_of_a_folder_apply_to_its_tests")
def test_an_invalid_store_setting_is_refused(tmp_path: Path) -> None:
    settings = "[pytest]\ntaskmq_app = shop:app\ntaskmq_store = perhaps\n"
    ran = run(tmp_path, "-k", "first", shop__py=_SHOP, test_shop__py=_TESTS, pytest__ini=settings)

    assert "taskmq_store = perhaps in pytest's settings: must be true or false" in ran.stdout, ran.stdout


_REQUESTED = pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py::test_a_missing_app_is_requested")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no app under test"),
        pytest.param(
            {"pytest__ini": "[pytest]\ntaskmq_app = shop:shop\n"}, "has no app called 'shop'", marks=_REQUESTED
        ),
        pytest.param(
            {"conftest__py": "import pytest\n@pytest.fixture\ndef taskmq_target():\n    return 7\n"},
            "taskmq_target=7",
            marks=_REQUESTED,
        ),
    ],
)
def test_a_missing_app_is_requested(tmp_path: Path, files: dict[str, str], why: str) -> None:
    ran = run(tmp_path, "-k", "first", shop__py=_SHOP, test_shop__py=_TESTS, **files)

    assert ran.returncode == 1
    assert why in ran.stdout


def test_a_project_without_taskmq_tests_loads_nothing_of_taskmq(tmp_path: Path) -> None:
    test = """
    import sys

    def test_it():
        mine = [name for name in sys.modules.copy() if name.partition(".")[0].startswith("taskmq")]
        assert sorted(mine) == ["taskmq", "taskmq.pytest_plugin"]
    """
    ran = run(tmp_path, "-q", _ALL_PLUGINS, test_nothing__py=test)

    assert "1 passed" in ran.stdout, ran.stdout
