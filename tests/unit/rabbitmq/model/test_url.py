import ssl
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.server_url import Host, Tls
from taskmq.errors import InvalidSetting
from taskmq_rabbitmq.model.url import Endpoint, TokenFile, TokenServer, parse_url, tls_context
from tests.servers.certificates import Authority

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.text(string.ascii_lowercase + string.digits + "-.", min_size=1, max_size=20)
hosts = st.lists(st.builds(Host, names, st.integers(1, 65535)), min_size=1, max_size=4)


@given(user=texts, password=texts, vhost=texts, nodes=hosts, heartbeat=st.integers(0, 65535))
def test_percent_encoding_survives_the_round_trip(
    user: str, password: str, vhost: str, nodes: list[Host], heartbeat: int
) -> None:
    authority = f"{quote(user, safe='')}:{quote(password, safe='')}@{','.join(map(str, nodes))}"

    endpoint = parse_url(f"amqp://{authority}/{quote(vhost, safe='')}?heartbeat={heartbeat}")

    assert endpoint == Endpoint(tuple(nodes), user, password, vhost, heartbeat=heartbeat)


@given(user=texts, vhost=texts, nodes=hosts)
def test_the_address_is_the_same_url_without_the_password(user: str, vhost: str, nodes: list[Host]) -> None:
    endpoint = Endpoint(tuple(nodes), user, "S3CRET", vhost)

    read = parse_url(endpoint.address)

    assert (read.hosts, read.user, read.vhost, read.password) == (endpoint.hosts, user, vhost, "")
    assert "S3CRET" not in endpoint.address + repr(endpoint)


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_an_error_that_hides_it(text: str) -> None:
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
        ("amqp://h?declare=auto", Endpoint((Host("h", 5672),), "guest", "guest")),
        ("amqp://h?declare=off", Endpoint((Host("h", 5672),), "guest", "guest", declare="off")),
        (
            "amqp://h?management=http%3A%2F%2Fweb%3A15672%2Frabbit%2F",
            Endpoint((Host("h", 5672),), "guest", "guest", management="http://web:15672/rabbit"),
        ),
        (
            "amqp://h?management=https://web",
            Endpoint((Host("h", 5672),), "guest", "guest", management="https://web"),
        ),
        (
            "amqps://h?cafile=a&certfile=c&keyfile=k&auth=external",
            Endpoint((Host("h", 5671),), "", "", tls=Tls("a", "c", "k"), auth="external"),
        ),
        ("amqp://h?token_file=/run/token", Endpoint((Host("h", 5672),), "", "", token=TokenFile("/run/token"))),
        ("amqp://u@h?token_file=t", Endpoint((Host("h", 5672),), "u", "", token=TokenFile("t"))),
        (
            "amqp://id:pass@h?oauth2_token_url=https%3A%2F%2Fidp%2Ftoken%3Fa%3Db&oauth2_scope=a%20b",
            Endpoint((Host("h", 5672),), "id", "pass", token=TokenServer("https://idp/token?a=b", "a b")),
        ),
        (
            "amqp://id:pass@h?oauth2_token_url=http://localhost:8080/token",
            Endpoint((Host("h", 5672),), "id", "pass", token=TokenServer("http://localhost:8080/token")),
        ),
    ],
)
def test_omitted_parts_have_their_defaults(url: str, endpoint: Endpoint) -> None:
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
        "amqp://h/?consumer_timeout=0",
        "amqp://h/?consumer_timeout=soon",
        "amqp://h/?heartbeat=1&heartbeat=2",
        "amqp://h/?hearbeat=1",
        "amqp://h/?heartbeat",
        "amqp://h/?wire=slow",
        "amqp://h/?cafile=x",
        "amqps://h/?keyfile=x",
        "amqp://h/?declare=no",
        "amqp://h/?management=web:15672",
        "amqp://h/?management=http://user:pw@web",
        "amqp://h/?auth=certificate",
        "amqp://h/?auth=external",
        "amqps://h/?auth=external",
        "amqps://u@h/?auth=external&certfile=c",
        "amqps://h/?auth=external&certfile=c&token_file=t",
        "amqp://u:p@h/?token_file=t",
        "amqp://h/?token_file=",
        "amqp://h/?oauth2_token_url=https://idp",
        "amqp://id@h/?oauth2_token_url=https://idp",
        "amqp://id:pass@h/?oauth2_token_url=https://idp&token_file=t",
        "amqp://id:pass@h/?oauth2_token_url=http://idp",
        "amqp://id:pass@h/?oauth2_token_url=https://u:p@idp",
        "amqp://id:pass@h/?oauth2_token_url=idp",
        "amqp://id:pass@h/?oauth2_token_url=https://[idp",
        "amqp://id:pass@h/?oauth2_token_url=https://idp:99999",
        "amqp://id:pass@h/?oauth2_scope=a",
        "amqps://h/?verify=off",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="the broker URL cannot be read"):
        parse_url(url)


def test_tls_verifies_the_server_and_its_name() -> None:
    tls = parse_url("amqps://h").tls

    assert tls is not None
    context = tls_context(tls)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_an_address_without_a_user_is_the_same_server() -> None:
    endpoint = parse_url("amqp://h/v?token_file=t")

    assert endpoint.address == "amqp://h:5672/v"


@pytest.mark.parametrize("option", ["cafile", "certfile"])
@pytest.mark.parametrize(
    ("text", "reason"), [(None, "No such file"), ("no certificate", "no certificate or crl found|not PEM")]
)
def test_an_unusable_certificate_file_is_named_by_its_option(
    tmp_path: Path, option: str, text: str | None, reason: str
) -> None:
    path = tmp_path / "file.pem"
    if text is not None:
        path.write_text(text)
    tls = parse_url(f"amqps://h?{option}={path}").tls

    assert tls is not None
    with pytest.raises(InvalidSetting, match=f"'s {option} cannot be used: .*({reason})"):
        tls_context(tls)


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("client")
    key = load_pem_private_key(certificate.key.read_bytes(), None)
    certificate.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password"))
    )
    tls = Tls(certfile=str(certificate.chain), keyfile=str(certificate.key))

    with pytest.raises(InvalidSetting, match="certfile or keyfile cannot be used: it is not PEM, or its key is"):
        tls_context(tls)


# The archive of dead letters


@pytest.mark.parametrize(
    ("query", "age", "size"),
    [
        ("archive=30d", "30D", 5_000_000_000),
        ("archive=12h", "12h", 5_000_000_000),
        ("archive=1d&archive_bytes=1000", "1D", 1000),
    ],
)
def test_an_archive_is_limited_by_age_and_size(query: str, age: str, size: int) -> None:
    archive = parse_url(f"amqp://h?{query}").archive

    assert archive is not None
    assert (archive.age, archive.bytes) == (age, size)


def test_there_is_no_archive_by_default() -> None:
    assert parse_url("amqp://h").archive is None


@pytest.mark.parametrize(
    "query", ["archive=", "archive=0d", "archive=30", "archive=1w", "archive=1d&archive_bytes=x", "archive_bytes=10"]
)
def test_an_archive_with_an_invalid_limit_is_refused(query: str) -> None:
    with pytest.raises(InvalidSetting, match="archive"):
        parse_url(f"amqp://h?{query}")


def test_the_consumer_timeout_of_the_node_defaults_to_half_an_hour() -> None:
    assert parse_url("amqp://h/").consumer_timeout == 1800
    assert parse_url("amqp://h/?consumer_timeout=7200").consumer_timeout == 7200
    assert parse_url("amqp://h/?consumer_timeout=2h&heartbeat=1m").consumer_timeout == 7200
    assert parse_url("amqp://h/?heartbeat=1m").heartbeat == 60
    assert parse_url("amqp://h/?consumer_timeout=off").consumer_timeout is None
