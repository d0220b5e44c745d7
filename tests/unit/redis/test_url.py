import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.server_url import Host, Tls
from taskmq.errors import InvalidSetting
from taskmq_redis import open_state
from taskmq_redis.url import Endpoint, parse_url

_SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("redis://", Endpoint(hosts=(Host("localhost", 6379),))),
        ("redis://cache", Endpoint(hosts=(Host("cache", 6379),))),
        ("redis://cache:7000/3", Endpoint(hosts=(Host("cache", 7000),), database=3)),
        ("redis://cache?db=3", Endpoint(hosts=(Host("cache", 6379),), database=3)),
        ("redis://:p%40ss@cache/", Endpoint(hosts=(Host("cache", 6379),), password="p@ss")),
        ("redis://me:secret@cache", Endpoint(hosts=(Host("cache", 6379),), user="me", password="secret")),
        ("redis://a,b:7000,[::1]:7001", Endpoint(hosts=(Host("a", 6379), Host("b", 7000), Host("::1", 7001)))),
        ("redis://a?prefix=shop:dev&timeout=0.5", Endpoint(hosts=(Host("a", 6379),), prefix="shop:dev", timeout=0.5)),
        ("rediss://a", Endpoint(hosts=(Host("a", 6379),), tls=Tls())),
        (
            "rediss://a?cafile=/ca&certfile=/crt&keyfile=/key",
            Endpoint(hosts=(Host("a", 6379),), tls=Tls("/ca", "/crt", "/key")),
        ),
        (
            "redis://:p@a,b:7000/1?sentinel=main&sentinel_user=me&sentinel_password=q",
            Endpoint(
                hosts=(Host("a", 26379), Host("b", 7000)),
                password="p",
                database=1,
                service="main",
                sentinel_user="me",
                sentinel_password="q",
            ),
        ),
        ("unix:///run/redis.sock", Endpoint(path="/run/redis.sock")),
        ("unix://:secret@/run/re%20dis?db=2", Endpoint(path="/run/re dis", password="secret", database=2)),
    ],
)
def test_a_url_names_an_endpoint(url: str, endpoint: Endpoint) -> None:
    assert parse_url(url) == endpoint


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis:/cache", "it looks like redis://"),
        ("redis://a/b/c", "the database must be a number"),
        ("redis://a/1?db=2", "the database must be a number"),
        ("redis://a:0", "host or port"),
        ("redis://a:99999", "host or port"),
        ("redis://a,,b", "host or port"),
        ("redis://a b", "host or port"),
        ("redis://a?prefix={x}", "prefix must be"),
        ("redis://a?prefix=", "prefix must be"),
        ("redis://a?timeout=0", "timeout must be"),
        ("redis://a?timeout=61", "timeout must be"),
        ("redis://a?timeout=soon", "timeout must be"),
        ("redis://a?colour=red", "the options after the '\\?' are"),
        ("redis://a?db=1&db=2", "each once at most"),
        ("redis://a?cafile=/x", "need rediss://"),
        ("rediss://a?keyfile=/x", "keyfile needs certfile"),
        ("redis://a?sentinel=", "sentinel must be"),
        ("redis://a?sentinel=a b", "sentinel must be"),
        ("redis://a?sentinel_password=hunter2", "require sentinel"),
        ("unix:///run/redis.sock?sentinel=main", "needs the hosts of the sentinels"),
        ("unix://", "a Unix socket looks like"),
        ("unix://host/path", "a Unix socket looks like"),
        ("redis://u:%ff@a", "is not UTF-8"),
    ],
)
def test_an_invalid_url_is_refused_by_name(url: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        open_state(url, BrokerOptions())


@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{_SECRET}@cache:7000/3?prefix=shop",
        f"rediss://:{_SECRET}@cache",
        f"unix://me:{_SECRET}@/run/redis.sock",
    ],
)
def test_no_address_shows_the_password(url: str) -> None:
    endpoint = parse_url(url)

    assert endpoint.password == _SECRET
    assert _SECRET not in endpoint.address
    assert _SECRET not in repr(endpoint)
    assert parse_url(endpoint.address).hosts == endpoint.hosts
    assert parse_url(endpoint.address).path == endpoint.path
    assert parse_url(endpoint.address).database == endpoint.database


@given(st.text(st.sampled_from(":/?#@,%[]& =\\"), max_size=3), st.text(st.sampled_from(":/?#@,%[]& =\\"), max_size=3))
def test_an_unencoded_password_is_never_shown(before: str, after: str) -> None:
    url = f"redis://me:{before}{_SECRET}{after}{_SECRET}@cache:7000/0"

    try:
        said = parse_url(url).address
    except InvalidSetting as error:
        said = str(error)

    assert _SECRET not in said
