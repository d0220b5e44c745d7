import pytest

from taskmq.contracts.server_url import Host, ServerUrl, Tls, UrlReader
from taskmq.errors import InvalidSetting

_READER = UrlReader(
    "shop", schemes=("shop", "shops"), example="shop://host", encoded="password", options=("a", "cafile", "keyfile")
)
_SECRET = "hunter2"


def test_a_url_is_parsed_and_its_login_decoded() -> None:
    url = _READER.read("shop://me:p%40ss@h1,[::1]:7/a%2Fb?a=1%20&cafile=")

    assert url == ServerUrl("shop", True, "me", "p@ss", "h1,[::1]:7", "/a%2Fb", {"a": "1 ", "cafile": ""})
    assert [str(host) for host in _READER.hosts(url, 5)] == ["h1:5", "[::1]:7"]
    assert _READER.read("shop://") == ServerUrl("shop", False, "", "", "", "", {})
    assert _READER.hosts(_READER.read("shop://"), 5) == (Host("localhost", 5),)


def test_the_representation_of_a_url_hides_the_password() -> None:
    assert _SECRET not in repr(_READER.read(f"shop://me:{_SECRET}@h?a={_SECRET}"))


def test_only_secure_urls_have_tls_files() -> None:
    assert _READER.tls(_READER.read("shops://h?cafile=/ca"), "shops") == Tls("/ca")
    assert _READER.tls(_READER.read("shop://h"), "shops") is None
    with pytest.raises(InvalidSetting, match="cafile, certfile and keyfile need shops://"):
        _READER.tls(_READER.read("shop://h?cafile=/ca"), "shops")
    with pytest.raises(InvalidSetting, match="keyfile needs certfile"):
        _READER.tls(_READER.read("shops://h?keyfile=/key"), "shops")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"shop:/{_SECRET}", "the shop URL cannot be read: it looks like shop://host; a '/'"),
        (f"shop://me:{_SECRET}@@h", "in a password must be percent-encoded"),
        (f"shop://me:{_SECRET}:b@h", "in a password must be percent-encoded"),
        (f"shop://me:{_SECRET}%ff@h", "a percent-encoded part is not UTF-8"),
        (f"shop://h?{_SECRET}", "what follows the '\\?' cannot be read"),
        (f"shop://h?{_SECRET}=1", "options after the '\\?' are a, cafile, keyfile, each once at most"),
        ("shop://h?a=1&a=2", "each once at most"),
    ],
)
def test_an_unparsable_url_is_refused_without_quoting_it(url: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as caught:
        _READER.read(url)

    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize("hosts", ["a:0", "a:99999", "a,,b", "a b", "[::1"])
def test_an_unparsable_host_is_refused(hosts: str) -> None:
    with pytest.raises(InvalidSetting, match="a host or port cannot be read"):
        _READER.hosts(_READER.read(f"shop://{hosts}"), 5)
