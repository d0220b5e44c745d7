"""`taskmq probe` behind global options; alone it runs without the command line's machinery."""

from typing import Annotated, Literal

from cyclopts import Parameter

from taskmq.errors import InvalidOption
from taskmq.model.units import seconds_in
from taskmq.probe import probe as ask

__all__ = ["probe"]


def probe(
    what: Literal["live", "ready"],
    /,
    *,
    port: Annotated[str | None, Parameter(env_var="TASKMQ_HEALTH_PORT")] = None,
    socket: str | None = None,
    timeout: str = "5s",
) -> int:
    """Exit with 0 if a worker says that it is live, or ready to take jobs; else with 1 and the reason.

    Parameters
    ----------
    what
        `live`: its processes say something. `ready`: one of them takes jobs.
    port
        The worker's --health-port: PORT of this machine, or HOST:PORT.
    socket
        The path, where the worker has a socket instead.
    timeout
        How long the worker has to answer, such as 5s.
    """
    where = socket or port
    if not where:
        raise InvalidOption("--port or --socket is missing, and $TASKMQ_HEALTH_PORT is not set")
    seconds = seconds_in(timeout)
    if seconds is None:
        raise InvalidOption(f"--timeout {timeout!r} is no duration: seconds, or such as '500ms'")
    return ask(what, where, timeout=seconds)
