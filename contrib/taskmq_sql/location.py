"""Job stores by URL."""

from typing import TYPE_CHECKING

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting, UnsupportedFeature

if TYPE_CHECKING:
    from taskmq.contracts.jobs import JobStore


def open_job_store(url: str, options: BrokerOptions) -> "JobStore":
    """Return a job store for the URL, not yet connected.

    Raises:
        InvalidSetting: the URL is malformed.
        UnsupportedFeature: a package that the store needs is not installed.
    """
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme == "sqlite":
        from taskmq_sql.sqlite import open_store

        return open_store(url, options)
    if scheme not in ("postgres", "postgresql"):
        raise InvalidSetting(f"{scheme}:// is not a job store: use postgresql://user@host/db or sqlite:///PATH")
    try:
        from taskmq_sql.postgres.store import PostgresJobStore
    except ImportError as error:
        raise UnsupportedFeature(f"the job store needs {error.name}: pip install 'taskmq[sql]'") from error
    return PostgresJobStore(url, name=options.name)
