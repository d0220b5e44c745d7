import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from taskmq.client import plugins
from taskmq.client.plugins import open_broker, open_metrics, open_state
from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting, UnsupportedFeature
from taskmq.model.telemetry.metrics import Exporter, Page, Snapshot, Source

_OPENERS: list[Callable[[str, BrokerOptions], object]] = [open_broker, open_state]
_KNOWN = {
    "taskmq.brokers": EntryPoints(
        [
            EntryPoint("here", f"{__name__}:_Opened", "taskmq.brokers"),
            EntryPoint("there", f"{__name__}:_Opened", "taskmq.brokers"),
        ]
    ),
    "taskmq.states": EntryPoints([EntryPoint("kept", f"{__name__}:_Opened", "taskmq.states")]),
}


class _Opened:
    """The part of an adapter that an opener has to return."""

    def __init__(self, url: str, options: BrokerOptions) -> None:
        self.url = url
        self.options = options


@pytest.fixture(autouse=True)
def _patch_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the installed packages: they belong to the environment, not to our code."""

    def entry_points(*, group: str) -> EntryPoints:
        return _KNOWN[group]

    monkeypatch.setattr(plugins, "entry_points", entry_points)


@pytest.mark.parametrize(
    ("open_it", "url"),
    [(open_broker, "here://"), (open_broker, "there://guest@a,b/"), (open_state, "kept://localhost:6379/0")],
)
def test_the_package_of_the_scheme_gets_the_whole_url_and_the_options(
    open_it: Callable[[str, BrokerOptions], object], url: str
) -> None:
    options = BrokerOptions(name="a test")

    opened = open_it(url, options)

    assert isinstance(opened, _Opened)
    assert opened.url == url
    assert opened.options is options


def test_an_unknown_scheme_is_reported_with_the_known_ones() -> None:
    with pytest.raises(InvalidSetting, match=r"kafka://.*known: here://, there://$"):
        open_broker("kafka://host/", BrokerOptions())


def test_a_broker_scheme_is_not_a_state_scheme() -> None:
    with pytest.raises(InvalidSetting, match=r"no installed state serves there://; known: kept://$"):
        open_state("there://host/", BrokerOptions())


def test_a_scheme_of_another_setting_is_reported_as_such() -> None:
    with pytest.raises(InvalidSetting, match=r"serves redis://; known: .*; redis:// is for state=$"):
        open_broker("redis://host/", BrokerOptions())


def test_a_state_without_its_client_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules.copy() if name.partition(".")[0] in ("redis", "taskmq_redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)  # as in an installation without the extra

    with pytest.raises(
        UnsupportedFeature, match=r"^the state redis:// needs redis\S*: pip install 'taskmq\[redis\]'$"
    ):
        open_state("redis://localhost/0", BrokerOptions())


@pytest.mark.parametrize("open_it", _OPENERS)
@pytest.mark.parametrize("url", ["", "localhost:5672", "amqp:", "amqp:/host", "://host", "/a/path"])
def test_a_url_without_a_scheme_is_refused_with_an_example(
    open_it: Callable[[str, BrokerOptions], object], url: str
) -> None:
    with pytest.raises(InvalidSetting, match=r"has no scheme; use one such as amqp://host/ or local://PATH"):
        open_it(url, BrokerOptions())


@pytest.mark.parametrize("open_it", _OPENERS)
@pytest.mark.parametrize(
    "url",
    [
        "kafka://user:hunter2@host/",
        "user:hunter2@host",
        "amqp:user:hunter2@host",
        "user:hunter2@host://",
        "amqp:user:hunter2@amqp://host",
        "hunter2 ://host",
        "kafka://host/?password=hunter2",
    ],
)
def test_an_error_never_contains_the_password(open_it: Callable[[str, BrokerOptions], object], url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        open_it(url, BrokerOptions())

    assert "hunter2" not in str(caught.value)


def _exporter(source: Source) -> Exporter:
    return lambda accept: Page("text/plain", f"{source().version} {accept}".encode())


def _snapshot() -> Snapshot:
    return Snapshot("1.2.3", [], [], 1, {}, {})


_LACKING = EntryPoint("lacking", "no_such_client:exporter", "taskmq.metrics")
_WORKING = EntryPoint("working", f"{__name__}:_exporter", "taskmq.metrics")


def test_the_first_loadable_exporter_receives_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_KNOWN, "taskmq.metrics", EntryPoints([_LACKING, _WORKING]))

    assert open_metrics(_snapshot)("text/html") == Page("text/plain", b"1.2.3 text/html")


def test_an_exporter_without_its_client_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_KNOWN, "taskmq.metrics", EntryPoints([_LACKING]))

    with pytest.raises(UnsupportedFeature, match=r"lacking metrics need no_such_client: pip install"):
        open_metrics(_snapshot)


def test_a_missing_exporter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_KNOWN, "taskmq.metrics", EntryPoints([]))

    with pytest.raises(UnsupportedFeature, match=r"no exporter .* pip install 'taskmq\[prometheus\]'"):
        open_metrics(_snapshot)
