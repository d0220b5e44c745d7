"""Sources of tokens: a file, or a token server (OAuth 2, client credentials). These calls block."""

import base64
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn, cast
from urllib.parse import quote_plus, urlencode

from taskmq.errors import AccessDenied, BrokerUnavailable
from taskmq_rabbitmq.model.tokens import MAX_BYTES, Token, TokenError, read_answer, read_token
from taskmq_rabbitmq.model.url import Endpoint, TokenFile, TokenServer

_SECONDS: Final = 10.0


def fetch(endpoint: Endpoint, *, now: Callable[[], float]) -> Token:
    """Fetch a token from the endpoint's source.

    Raises:
        AccessDenied: the file cannot be read, or the token server refuses this client.
        BrokerUnavailable: the token server does not answer with a token.
    """
    match endpoint.token:
        case TokenFile(path):
            return _from_file(path)
        case TokenServer() as server:
            return _from_server(server, endpoint, now)
        case None:
            raise AssertionError


def _from_file(path: str) -> Token:
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
        return read_token(text)
    except OSError as error:
        raise AccessDenied(f"no token: {path}: {error.strerror or type(error).__name__}") from error
    except (TokenError, UnicodeDecodeError) as error:
        # The exception chain would show bytes that are not UTF-8.
        reason = str(error) if isinstance(error, TokenError) else "it is not text"
        raise AccessDenied(f"no token: {path}: {reason}") from None


def _from_server(server: TokenServer, endpoint: Endpoint, now: Callable[[], float]) -> Token:
    form = {"grant_type": "client_credentials", **({} if server.scope is None else {"scope": server.scope})}
    login = f"{quote_plus(endpoint.user)}:{quote_plus(endpoint.password)}"
    request = urllib.request.Request(  # noqa: S310 - the URL's scheme was checked when it was read
        server.url,
        data=urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
        },
    )
    where = f"no token from {server.url.partition('?')[0]}"
    try:
        with _opener(endpoint).open(request, timeout=_SECONDS) as response:
            return read_answer(response.read(MAX_BYTES * 2), now=now())
    except urllib.error.HTTPError as error:
        with error:
            _raise_refusal(error, where)
    except urllib.error.URLError as error:
        raise BrokerUnavailable(f"{where}: {error.reason}") from None
    except (OSError, http.client.HTTPException, TokenError) as error:
        raise BrokerUnavailable(f"{where}: {str(error) or type(error).__name__}") from None


def _raise_refusal(error: urllib.error.HTTPError, where: str) -> NoReturn:
    reason = f"{where}: it answered {error.code}{_code(error)}"
    if error.code in {429, 408} or error.code >= 500:
        raise BrokerUnavailable(reason) from None
    if error.code < 400:
        raise BrokerUnavailable(f"{reason}: redirects are not followed") from None
    raise AccessDenied(f"{reason}; check the client id, the client secret and oauth2_scope") from None


def _code(error: urllib.error.HTTPError) -> str:
    """Return the error code of RFC 6749, 5.2, and no other text of the server."""
    try:
        answer = json.loads(error.read(MAX_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    code = cast("dict[str, object]", answer).get("error") if isinstance(answer, dict) else None
    return f" {code}" if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would take the client secret along."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener(endpoint: Endpoint) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if endpoint.tls is not None and endpoint.tls.cafile is not None:
        context.load_verify_locations(endpoint.tls.cafile)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
