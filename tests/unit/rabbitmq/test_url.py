import ssl
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidSetting
from taskmq_rabbitmq.url import Endpoint, Host, Tls, parse_url

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.text(string.ascii_lowercase + string.digits + "-.", min_size=1, max_size=20)
hosts = st.lists(st.builds(Host, names, st.integers(1, 65535)), min_size=1, max_size=4)


@given(user=texts, password=texts, vhost=texts, nodes=hosts, heartbeat=st.integers(0, 65535))
def test_what_is_percent_encoded_comes_back(
    user: str, password: str, vhost: str, nodes: list[Host], heartbeat: int
) -> None:
    authority = f"{quote(user, safe='')}:{quote(password, safe='')}@{','.join(map(str, nodes))}"

    endpoint = parse_url(f"amqp://{authority}/{quote(vhost, safe='')}?heartbeat={heartbeat}")

    assert endpoint == Endpoint(tuple(nodes), user, password, vhost, heartbeat=heartbeat)


@given(user=texts, vhost=texts, nodes=hosts)
def test_the_address_is_a_url_of_the_same_place_without_the_password(
    user: str, vhost: str, nodes: list[Host]
) -> None:
    endpoint = Endpoint(tuple(nodes), user, "S3CRET", vhost)

    read = parse_url(endpoint.address)

    assert (read.hosts, read.user, read.vhost, read.password) == (endpoint.hosts, user, vhost, "")
    assert "S3CRET" not in endpoint.address + repr(endpoint)


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_an_error_that_does_not_show_it(text: str) -> None:
    secret = "Q7x" + "".join(character for character in text if character.isprintable()) + "Q7x"
    shown = ""
    try:
        shown = parse_url(f"amqp://user:{secret}@host/").address
    except InvalidSetting as error:
        shown = f"{error} {error.__cause__} {error.__context__ if not error.__suppress_context__ else ''}"
    assert "Q7x" not in shown


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("amqp://", Endpoint((Host("localhost", 5672),), "guest", "guest")),
        ("amqp://h", Endpoint((Host("h", 5672),), "guest", "guest")),
        ("amqp://h/", Endpoint((Host("h", 5672),), "guest", "guest")),
        ("amqp://h/%2F", Endpoint((Host("h", 5672),), "guest", "guest")),
        ("amqp://h/%2Fa", Endpoint((Host("h", 5672),), "guest", "guest", "/a")),
        ("amqp://u@h:1,i", Endpoint((Host("h", 1), Host("i", 5672)), "u", "")),
        ("amqp://u:p@[::1]:7,[fe80::1]", Endpoint((Host("::1", 7), Host("fe80::1", 5672)), "u", "p")),
        ("amqps://h", Endpoint((Host("h", 5671),), "guest", "guest", tls=Tls())),
        ("amqp://h?wire=plain", Endpoint((Host("h", 5672),), "guest", "guest", wire="plain")),
    ],
)
def test_what_is_left_out_has_its_default(url: str, endpoint: Endpoint) -> None:
    assert parse_url(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "http://h/",
        "amqp:h",
        "amqp://h:0/",
        "amqp://h:65536/",
        "amqp://h:x/",
        "amqp://h,/",
        "amqp://u:p:q@h/",
        "amqp://u:p@q@h/",
        "amqp://u:p/q@h/",
        "amqp://u:p?q@h/",
        "amqp://u:p#q@h/",
        "amqp://h/a/b",
        "amqp://h/%FF",
        "amqp://h/?heartbeat=soon",
        "amqp://h/?heartbeat=1&heartbeat=2",
        "amqp://h/?hearbeat=1",
        "amqp://h/?heartbeat",
        "amqp://h/?wire=slow",
        "amqp://h/?cafile=x",
        "amqps://h/?keyfile=x",
    ],
)
def test_what_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="the broker URL cannot be read"):
        parse_url(url)


def test_tls_verifies_the_server_and_its_name() -> None:
    tls = parse_url("amqps://h").tls

    assert tls is not None
    context = tls.context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_file_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    tls = parse_url(f"amqps://h?cafile={tmp_path}/none.pem").tls

    assert tls is not None
    with pytest.raises(InvalidSetting, match="cafile"):
        tls.context()
