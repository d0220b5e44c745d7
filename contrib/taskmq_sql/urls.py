"""What is read of the URL of a PostgreSQL database, which may name several hosts."""

from urllib.parse import urlsplit

from taskmq.errors import InvalidSetting

__all__ = ["address_of", "plain_url"]


def plain_url(url: str) -> str:
    """The URL as asyncpg reads it: without the name of a driver."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def address_of(url: str) -> str:
    """The URL without its password and options, for messages.

    Raises:
        InvalidSetting: it cannot be read.
    """
    try:
        parts = urlsplit(url)
        person, _, hosts = parts.netloc.rpartition("@")
        where = ",".join(_place(host) for host in hosts.split(","))
    except ValueError as error:
        raise InvalidSetting("the job store's URL cannot be read: it looks like postgresql://user@host/db") from error
    name = person.partition(":")[0]
    user = f"{name}@" if name else ""
    return f"{parts.scheme}://{user}{where}{parts.path}"


def _place(host: str) -> str:
    """One of several hosts, with its port if it has one.

    Raises:
        ValueError: it cannot be read.
    """
    parts = urlsplit(f"//{host}")
    name = parts.hostname or "localhost"
    where = f"[{name}]" if ":" in name else name
    return where if parts.port is None else f"{where}:{parts.port}"
