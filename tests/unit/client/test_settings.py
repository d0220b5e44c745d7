import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.client.settings import DEFAULT_URL, Settings, load_settings
from taskmq.errors import InvalidSetting

_ROOT = Path(__file__).parents[3]


def load(directory: Path, **environment: str) -> Settings:
    return load_settings(environment, directory)


def test_every_setting_has_a_default(tmp_path: Path) -> None:
    settings = load(tmp_path)

    assert settings == Settings()
    assert settings.origin == {}
    assert DEFAULT_URL == "local://.taskmq"


def test_every_setting_can_be_set_by_environment_variable(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        TASKMQ_URL="amqp://host/",
        TASKMQ_STATE="redis://host/",
        TASKMQ_APP="shop:app",
        TASKMQ_CONCURRENCY="8",
        TASKMQ_PROCESSES="1-8",
        TASKMQ_GRACE="30s",
        PATH="/bin",
        taskmq_url="is another variable",
    )

    assert settings == Settings(
        url="amqp://host/", state="redis://host/", app="shop:app", concurrency=8, processes="1-8", grace="30s"
    )
    assert settings.origin["concurrency"] == "$TASKMQ_CONCURRENCY"


def test_every_setting_can_be_set_in_taskmq_toml(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.toml"
    path.write_text(
        'url = "amqp://host/"\nstate = "redis://host/"\napp = "shop:app"\n'
        'concurrency = 8\nprocesses = 2\ngrace = "1m"\n'
    )

    settings = load(tmp_path)

    assert settings == Settings(
        url="amqp://host/", state="redis://host/", app="shop:app", concurrency=8, processes="2", grace="1m"
    )
    assert set(settings.origin.values()) == {str(path)}


def test_settings_may_be_in_pyproject_toml(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "shop"\n[tool.taskmq]\nurl = "amqp://host/"\n[tool.other]\nurl = "x"\n')

    settings = load(tmp_path)

    assert settings.url == "amqp://host/"
    assert settings.origin == {"url": f"{path} [tool.taskmq]"}


def test_the_settings_file_is_found_from_a_folder_below_it(tmp_path: Path) -> None:
    (tmp_path / "taskmq.toml").write_text('url = "amqp://host/"')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert load(below).url == "amqp://host/"


def test_the_nearest_file_wins_and_taskmq_toml_precedes_pyproject_toml(tmp_path: Path) -> None:
    below = tmp_path / "a"
    below.mkdir()
    (tmp_path / "taskmq.toml").write_text('url = "far"\ngrace = "1s"')
    (below / "pyproject.toml").write_text('[tool.taskmq]\nurl = "near"')
    by_project = load(below)
    (below / "taskmq.toml").write_text('url = "nearest"')

    assert (by_project.url, by_project.grace) == ("near", None)
    assert load(below).url == "nearest"


@pytest.mark.parametrize("content", ["", "[project]\n", "[tool.other]\n", "tool = 3\n", '[[tool]]\ntaskmq = "x"\n'])
def test_a_pyproject_toml_without_a_taskmq_table_is_skipped(tmp_path: Path, content: str) -> None:
    below = tmp_path / "a"
    below.mkdir()
    (tmp_path / "taskmq.toml").write_text('url = "far"')
    (below / "pyproject.toml").write_text(content)

    assert load(below).url == "far"


def test_the_environment_overrides_the_file_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.toml"
    path.write_text('url = "file"\ngrace = "1s"')

    settings = load(tmp_path, TASKMQ_URL="environment")

    assert (settings.url, settings.grace) == ("environment", "1s")
    assert settings.origin == {"url": "$TASKMQ_URL", "grace": str(path)}


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("TASKMQ_ULR", r"^\$TASKMQ_ULR: unknown setting 'ulr'; did you mean 'url'\?$"),
        ("TASKMQ_CONCURENCY", r"did you mean 'concurrency'\?$"),
        (
            "TASKMQ_ZZZZ",
            r"unknown setting 'zzzz'; known: url, .*results_at, app, app_version, concurrency, processes, grace$",
        ),
        ("TASKMQ_ORIGIN", r"unknown setting 'origin'"),
        ("TASKMQ_", r"unknown setting ''"),
    ],
)
def test_an_unknown_variable_is_refused(tmp_path: Path, variable: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        load(tmp_path, **{variable: "x"})


def test_variables_of_the_test_suite_are_not_settings(tmp_path: Path) -> None:
    assert load(tmp_path, TASKMQ_TEST_RABBITMQ="4.0", TASKMQ_HEALTH_PORT="9464") == Settings()


def test_every_variable_named_in_documentation_and_deploy_files_is_known(tmp_path: Path) -> None:
    folders = [_ROOT / "docs", _ROOT / "contrib" / "deploy"]
    # The gate compiles contrib too.
    pages = [path for each in folders for path in each.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = {
        name for path in pages for name in re.findall(r"\bTASKMQ_[A-Z_]*[A-Z]", path.read_text(errors="replace"))
    }

    assert {"TASKMQ_URL", "TASKMQ_SMTP_URL", "TASKMQ_WEBHOOK_ALLOW_PRIVATE"} <= found
    load_settings(dict.fromkeys(found, "1"), tmp_path)


def test_a_misspelt_alert_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="webhook_secert"):
        load(tmp_path, TASKMQ_WEBHOOK_SECERT="x")


def test_an_unknown_key_in_a_file_is_refused_with_its_location(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.toml"
    path.write_text('ulr = "x"')
    with pytest.raises(InvalidSetting, match=rf"^{path}: unknown setting 'ulr'; did you mean 'url'\?$"):
        load(tmp_path)
    path.unlink()
    (tmp_path / "pyproject.toml").write_text("[tool.taskmq]\nqueue.name = 3")
    with pytest.raises(InvalidSetting, match=r"pyproject.toml \[tool.taskmq\]: unknown setting 'queue'"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("url", "true", "str"),
        ("url", "[1]", "str"),
        ("url", "{ a = 1 }", "str"),
        ("grace", "1.5", "str"),
        ("app_version", '""', "text of 1 to 100 printable characters"),
        ("concurrency", '"many"', "int"),
        ("concurrency", "2.5", "int"),
        ("processes", "true", "number, or a range such as '1-8'"),
        ("processes", '""', "number, or a range such as '1-8'"),
        ("processes", '"1-"', "number, or a range such as '1-8'"),
        ("processes", "-1", "number, or a range such as '1-8'"),
        ("processes", "0", "number, or a range such as '1-8'"),
        ("processes", '"8-1"', "number, or a range such as '1-8'"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, key: str, value: str, kind: str) -> None:
    path = tmp_path / "taskmq.toml"
    path.write_text(f"{key} = {value}")

    with pytest.raises(InvalidSetting, match=rf"^{path}: {key} must be a {kind}$"):
        load(tmp_path)


def test_an_invalid_number_in_the_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^\$TASKMQ_CONCURRENCY: concurrency must be a int$"):
        load(tmp_path, TASKMQ_CONCURRENCY="many")


@pytest.mark.parametrize("name", ["taskmq.toml", "pyproject.toml"])
@pytest.mark.parametrize("content", [b"[", b'url = "amqp://u:hunter2@h', b"a = 1\na = 2", b"\xff\xfe"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidSetting, match=rf"^{tmp_path / name} cannot be read: ") as caught:
        load(tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["3", '"amqp://u:hunter2@h/"', "[1]"])
def test_a_tool_table_that_is_not_a_table_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool]\ntaskmq = {value}")

    with pytest.raises(InvalidSetting, match=r"pyproject.toml \[tool.taskmq\] must be a table$") as caught:
        load(tmp_path)
    assert "hunter2" not in str(caught.value)


@given(
    st.dictionaries(
        st.sampled_from(["URL", "STATE", "APP", "CONCURRENCY", "PROCESSES", "GRACE", "PASSWORD"]).map(
            "TASKMQ_".__add__
        ),
        st.just("amqp://user:hunter2@host/") | st.sampled_from(["1", "x"]),
    )
)
def test_an_error_never_contains_a_password_from_the_environment(environment: dict[str, str]) -> None:
    try:
        load_settings(environment, Path("/"))
    except InvalidSetting as error:
        assert "hunter2" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"  # noqa: PT017


def test_the_chained_error_does_not_contain_a_refused_value_either(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(tmp_path, TASKMQ_CONCURRENCY="amqp://user:hunter2@host/")

    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    settings = load_settings({"TASKMQ_STATE": "", "TASKMQ_CONCURRENCY": "", "TASKMQ_NONSENSE": ""}, tmp_path)

    assert settings == Settings()
