"""OAuth 2 for tests: tokens that a private node accepts, and a server that issues them."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote_plus

_KEY = b"of the tests"
# The last part is for topic exchanges, which make up the delay ladder.
_EVERYTHING = ("configure:*/*", "write:*/*", "read:*/*", "write:*/*/*", "read:*/*/*", "tag:administrator")

PLUGIN = "rabbitmq_auth_backend_oauth2"
CONFIG = {"auth_backends.1": "rabbit_auth_backend_oauth2", "auth_backends.2": "rabbit_auth_backend_internal"}
ADVANCED_CONFIG = f"""\
[{{{PLUGIN}, [
  {{resource_server_id, <<"rabbitmq">>}},
  {{key_config, [
    {{default_key, <<"tests">>}},
    {{signing_keys, #{{<<"tests">> =>
      {{map, #{{<<"kty">> => <<"MAC">>, <<"alg">> => <<"HS256">>, <<"value">> => <<"{_KEY.decode()}">>}}}}}}}}
  ]}}
]}}].
"""


def signed_token(*, seconds: float = 3600, rights: tuple[str, ...] = _EVERYTHING, more: str = "") -> str:
    """Return a token for a user "tester" that expires `seconds` from now; whole seconds, rounded up."""
    now = time.time()
    claims = {
        "sub": "tester",
        "client_id": "tester",
        "aud": ["rabbitmq"],
        "scope": [f"rabbitmq.{right}" for right in rights],
        "iat": int(now),
        "jti": f"{now:.6f}",
        "exp": int(now + seconds + 0.999),
        "more": more,
    }
    head = {"alg": "HS256", "typ": "JWT", "kid": "tests"}
    text = b".".join(_encode(json.dumps(part).encode()) for part in (head, claims))
    return b".".join((text, _encode(hmac.digest(_KEY, text, hashlib.sha256)))).decode()


class TokenServer:
    """A token endpoint for client credentials, on 127.0.0.1.

    Attributes:
        url: its address.
        forms: the posted forms.
        handed_out: the tokens, oldest first.
        answer: the answer to the next requests: a status, and a body or None for a fresh token.
    """

    def __init__(self, *, client_id: str, secret: str, make: Callable[[], str] = signed_token) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.handed_out: list[str] = []
        self.answer: tuple[int, bytes | None] = (200, None)
        self._login = (client_id, secret)
        self._make = make
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _respond(self, authorization: str, form: str) -> tuple[int, bytes]:
        scheme, _, coded = authorization.partition(" ")
        login = base64.b64decode(coded).decode().partition(":")
        self.forms.append(parse_qs(form))
        if scheme != "Basic" or (unquote_plus(login[0]), unquote_plus(login[2])) != self._login:
            return 401, b'{"error": "invalid_client", "error_description": "not you"}'
        status, body = self.answer
        if body is None:
            self.handed_out.append(self._make())
            body = json.dumps(
                {"access_token": self.handed_out[-1], "token_type": "Bearer", "expires_in": 3600}
            ).encode()
        return status, body

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, body = server._respond(self.headers["Authorization"] or "", form)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
                """Do nothing."""

        return Handler


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
