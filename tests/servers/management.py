"""RabbitMQ's management HTTP API, as far as tests need it."""

import base64
import json
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit

from tests.servers.errors import ServerFailed


class Management:
    """The JSON API at a URL with the user and the password."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._root = f"{parts.scheme}://{host}"
        credentials = f"{unquote(parts.username or 'guest')}:{unquote(parts.password or 'guest')}"
        self._authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        # Proxies in the environment are not for a server on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(self, method: str, path: str, body: object = None) -> object:
        """Return the decoded answer of the API; None for an empty one.

        Raises:
            ServerFailed: it answered with an error status; the message has its reason.
            OSError: it did not answer.
        """
        request = urllib.request.Request(
            self._root + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=15) as response:
                answer: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            raise ServerFailed(f"{method} {path} answered {error.code}: {reason}") from error
        return json.loads(answer) if answer else None
