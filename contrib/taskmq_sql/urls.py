"""Parsing of PostgreSQL URLs, which may name several hosts."""

from urllib.parse import urlsplit

from taskmq.errors import InvalidSetting


def plain_url(url: str) -> str:
    """Return the URL for asyncpg: without a driver name."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def address_of(url: str) -> str:
    """Return the URL without its password and options, for messages.

    Raises:
        InvalidSetting: the URL is malformed.
    """
    try:
        parts = urlsplit(url)
        person, _, hosts = parts.netloc.rpartition("@")
        where = ",".join(_host_and_port(host) for host in hosts.split(","))
    except ValueError as error:
        raise InvalidSetting("the job store's URL is malformed: use postgresql://user@host/db") from error
    name = person.partition(":")[0]
    user = f"{name}@" if name else ""
    return f"{parts.scheme}://{user}{where}{parts.path}"


def _host_and_port(host: str) -> str:
    """Return one of several hosts, with its port if it has one.

    Raises:
        ValueError: the host is malformed.
    """
    parts = urlsplit(f"//{host}")
    name = parts.hostname or "localhost"
    where = f"[{name}]" if ":" in name else name
    return where if parts.port is None else f"{where}:{parts.port}"
