"""`taskmq probe live|ready`: queries a worker's health port, for exec probes and container health checks.

It imports only what the interpreter has already loaded, so that a probe every second costs almost nothing. It sends
one request and reads the first line of the response.
"""

import _socket
import os
import sys

OK = 0
FAILED = 1
USAGE = 2

_DEFAULT_HOST = "127.0.0.1"
_TIMEOUT = 5.0
_HELP = """Usage: taskmq probe live|ready [--port PORT|HOST:PORT] [--socket PATH] [--timeout 5s]

Exit with 0 if the worker with this --health-port is live, or ready to run jobs; otherwise with 1, printing the
reason. Default: $TASKMQ_HEALTH_PORT, on this machine.
"""


def main(tokens: list[str]) -> int:
    """Run the command with these arguments and return the exit code."""
    what, where, timeout = "", os.environ.get("TASKMQ_HEALTH_PORT", ""), _TIMEOUT
    rest = [part for token in tokens for part in (token.split("=", 1) if token.startswith("--") else [token])]
    try:
        while rest:
            token = rest.pop(0)
            if token in ("--help", "-h"):
                sys.stdout.write(_HELP)
                return OK
            if token in ("--port", "--socket"):
                where = rest.pop(0)
            elif token == "--timeout":  # noqa: S105 - a flag
                timeout = _seconds(rest.pop(0))
            elif token in ("live", "ready") and not what:
                what = token
            else:
                return _refuse(f"unknown argument {token!r}")
    except (IndexError, ValueError):
        return _refuse("a value is missing, or is not a number")
    if not what or not where:
        return _refuse("give live or ready, and --port or --socket" if not what else "--port or --socket is missing")
    return probe(what, where, timeout=timeout)


def _seconds(text: str) -> float:
    """Parse "5", "5s", "500ms" or "1m"; here, because importing the shared parser is too slow."""
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def probe(what: str, where: str, *, timeout: float = _TIMEOUT) -> int:
    """Request `/what` at a port, `HOST:PORT` or a socket's path. Returns 0 on success, otherwise 1, and prints the
    reason.
    """
    try:
        answer = _ask(what, where, timeout)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"taskmq probe: {where} does not answer: {error}\n")
        return FAILED
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        return OK
    # Any program may listen there, so its text must not control the terminal.
    said = body.decode("utf-8", "replace").strip()
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in said)
    sys.stderr.write(f"taskmq probe: not {what}: {shown}\n")
    return FAILED


def _ask(what: str, where: str, timeout: float) -> bytes:
    address: tuple[object, ...] | str = where
    if "/" in where:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    else:
        host, _, port = where.rpartition(":")
        # Bytes, because a string would load the IDNA codec.
        name = (host.strip("[]") or _DEFAULT_HOST).encode()
        kind, _, _, _, address = _socket.getaddrinfo(name, int(port), 0, _socket.SOCK_STREAM)[0]
        connection = _socket.socket(kind, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
        connection.sendall(f"GET /{what} HTTP/1.1\r\nHost: taskmq\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
        return answer
    finally:
        connection.close()


def _refuse(why: str) -> int:
    sys.stderr.write(f"taskmq probe: {why}\n{_HELP}")
    return USAGE
