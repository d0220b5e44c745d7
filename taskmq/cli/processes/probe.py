"""`taskmq probe` with global options; without them, it runs without the command-line framework."""

from typing import Annotated, Literal

from cyclopts import Parameter

from taskmq.errors import InvalidOption
from taskmq.model.units import seconds_in
from taskmq.probe import probe as ask


def probe(
    what: Literal["live", "ready"],
    /,
    *,
    port: Annotated[str | None, Parameter(env_var="TASKMQ_HEALTH_PORT")] = None,
    socket: str | None = None,
    timeout: str = "5s",
) -> int:
    """Check whether a worker is live, or ready to take jobs. Exits with 0 if so, else with 1 and the reason.

    Args:
        what: `live`: its processes respond. `ready`: at least one accepts jobs.
        port: The worker's --health-port: PORT of this machine, or HOST:PORT.
        socket: The socket's path, if the worker uses one.
        timeout: How long to wait for an answer, such as 5s.
    """
    where = socket or port
    if not where:
        raise InvalidOption("pass --port or --socket, or set $TASKMQ_HEALTH_PORT")
    seconds = seconds_in(timeout)
    if seconds is None:
        raise InvalidOption(f"--timeout {timeout!r} is not a duration: give seconds, or for example '500ms'")
    return ask(what, where, timeout=seconds)
