"""The OpenID Connect provider: redirects, code exchange and token verification."""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec

from taskmq.api.values import API
from taskmq.errors import InvalidSetting, NotAuthenticated, NotPermitted, ServerUnavailable, UnsupportedFeature
from taskmq.model.clock import Clock
from taskmq.server.oidc.settings import OidcSettings, check_provider_url

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("taskmq.server")

# Only signatures with the provider's private key; symmetric and unsigned tokens are not accepted.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_KEPT_SECONDS: Final = 3600.0
_BETWEEN_KEYS: Final = 10.0
_TIMEOUT: Final = 10.0
_LEEWAY: Final = 60
_FAILED: Final = "the sign-in failed: start again"


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A pending sign-in, stored in the browser.

    Attributes:
        state: returned by the provider. It ties the sign-in to this browser, so that no other site can sign it in as
            another user.
        nonce: part of the ID token, so that tokens of other sign-ins are not accepted.
        verifier: proves the PKCE challenge, so that an intercepted code is useless.
        next: the path to redirect to after sign-in.
    """

    state: str
    nonce: str
    verifier: str
    next: str


class ProvidedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user as the provider describes them. Only `subject` is permanent."""

    subject: str
    name: str
    email: str
    groups: frozenset[str]


class _Discovered(msgspec.Struct, frozen=True):
    """The used parts of a provider's discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class OidcProvider:
    """An OpenID Connect provider, as used by one server.

    Args:
        http: a custom httpx client, for proxies and certificates.

    Raises:
        UnsupportedFeature: a dependency is not installed.
    """

    def __init__(self, settings: OidcSettings, *, clock: Clock, http: "httpx.AsyncClient | None" = None) -> None:
        try:
            import httpx
            import jwt
        except ImportError as error:
            raise UnsupportedFeature(f"OIDC needs {error.name}: pip install 'taskmq[oidc]'") from error

        self.settings: OidcSettings = settings
        self._clock = clock
        self._http = httpx.AsyncClient(timeout=_TIMEOUT) if http is None else http
        self._is_own = http is None
        self._jwt: Any = jwt
        self._transport_errors: tuple[type[Exception], ...] = (httpx.HTTPError,)
        self._discovered: tuple[_Discovered, float] | None = None
        self._keys: dict[str, Any] = {}
        self._keys_at: float | None = None

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        if self._is_own:
            await self._http.aclose()

    @property
    def callback(self) -> str:
        """The callback URL, to be registered with the provider."""
        return f"{self.settings.public_url.rstrip('/')}{API}/auth/oidc/callback"

    async def begin(self, following: str) -> tuple[PendingLogin, str]:
        """Start a sign-in. Returns what the browser must keep and the URL to redirect it to.

        Raises:
            ServerUnavailable: the provider does not answer.
        """
        found = await self._discover()
        pending = PendingLogin(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            next=following,
        )
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.callback,
            "scope": " ".join(self.settings.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": _base64(hashlib.sha256(pending.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in found.authorization_endpoint else "?"
        return pending, f"{found.authorization_endpoint}{separator}{urlencode(query)}"

    async def user(self, pending: PendingLogin, answer: Mapping[str, str]) -> ProvidedUser:
        """Return the user who signed in.

        Args:
            answer: the parameters of the provider's callback.

        Raises:
            NotAuthenticated: the callback is invalid, or belongs to another sign-in.
            NotPermitted: the provider refused the sign-in.
            ServerUnavailable: the provider does not answer.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(errors="replace"), pending.state.encode()):
            raise self._failure("the state does not match the browser's")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise self._failure("the callback names another issuer")
        if "error" in answer:
            _log.warning("OIDC: the provider refused a sign-in: %s", answer["error"][:80].encode())
            raise NotPermitted("the provider refused the sign-in")
        if not answer.get("code"):
            raise self._failure("the callback has no code")
        claims = await self._claims(await self._exchange_code(answer["code"], pending), pending)
        return self._user_of(claims)

    async def _exchange_code(self, code: str, pending: PendingLogin) -> str:
        """Exchange the code for an ID token."""
        found = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.callback,
            "code_verifier": pending.verifier,
        }
        secret = self.settings.client_secret
        headers: dict[str, str] = {}
        if secret and "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            # Both are URL-quoted first: RFC 6749, 2.3.1.
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.settings.client_id} | ({"client_secret": secret} if secret else {})
        try:
            response = await self._http.post(found.token_endpoint, data=form, headers=headers)
        except self._transport_errors as error:
            raise self._unavailable(error) from error
        if response.status_code >= 500:
            raise self._unavailable(f"status {response.status_code}")
        try:
            return msgspec.json.decode(response.content, type=_Tokens).id_token
        except msgspec.MsgspecError:
            raise self._failure(f"no ID token for the code: status {response.status_code}") from None

    async def _claims(self, token: str, pending: PendingLogin) -> Mapping[str, Any]:
        """Verify an ID token and return its claims."""
        try:
            header = self._jwt.get_unverified_header(token)
            key = await self._key(header.get("kid", ""))
            claims: Mapping[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except self._jwt.PyJWTError as error:
            raise self._failure(f"the ID token is invalid: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(errors="replace"), pending.nonce.encode()):
            raise self._failure("the nonce does not match the sign-in")
        # With several audiences, the token must be issued to this client.
        if claims.get("azp", self.settings.client_id) != self.settings.client_id:
            raise self._failure("the ID token was issued to another client")
        return claims

    def _user_of(self, claims: Mapping[str, Any]) -> ProvidedUser:
        groups = claims.get(self.settings.groups_claim, ())
        names = (
            [groups] if isinstance(groups, str) else cast("list[object]", groups if isinstance(groups, list) else [])
        )
        return ProvidedUser(
            subject=str(claims["sub"]),
            name=str(claims.get(self.settings.name_claim, "")),
            email=str(claims.get("email", "")) if claims.get("email_verified") is True else "",
            groups=frozenset(str(name) for name in names),
        )

    async def _key(self, name: str) -> Any:
        """Return the provider's key of that name. Unknown names reload the keys, for example after a rotation."""
        now = self._clock.monotonic()
        is_old = self._keys_at is None or now - self._keys_at > _KEPT_SECONDS
        # Made-up names must not reload the keys each time.
        may_fetch = self._keys_at is None or now - self._keys_at >= _BETWEEN_KEYS
        if is_old or (name not in self._keys and may_fetch):
            found = await self._discover()
            document = await self._fetch(found.jwks_uri)
            try:
                keys = self._jwt.PyJWKSet.from_json(document.decode()).keys
            except (ValueError, self._jwt.PyJWTError) as error:
                raise self._unavailable(error) from error
            self._keys = {key.key_id or "": key for key in keys if key.public_key_use in (None, "sig")}
            self._keys_at = now
        if not name and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys:
            raise self._failure("the ID token is signed with an unknown key")
        return self._keys[name]

    async def _discover(self) -> _Discovered:
        now = self._clock.monotonic()
        if self._discovered is not None and now - self._discovered[1] < _KEPT_SECONDS:
            return self._discovered[0]
        document = await self._fetch(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        try:
            found = msgspec.json.decode(document, type=_Discovered)
        except msgspec.MsgspecError as error:
            raise self._unavailable(error) from error
        if found.issuer != self.settings.issuer:
            raise self._unavailable(f"its discovery document names issuer {found.issuer!r}")
        try:
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                check_provider_url("endpoint", url)
        except InvalidSetting as error:
            raise self._unavailable(error) from error
        self._discovered = (found, now)
        return found

    async def _fetch(self, url: str) -> bytes:
        try:
            response = await self._http.get(url)
            response.raise_for_status()
        except self._transport_errors as error:
            raise self._unavailable(error) from error
        content: bytes = response.content
        return content

    def _unavailable(self, why: object) -> ServerUnavailable:
        _log.warning("OIDC: the provider %s is unavailable: %s", self.settings.issuer, why)
        return ServerUnavailable("the sign-in provider is unavailable")

    def _failure(self, why: str) -> NotAuthenticated:
        """Log why a sign-in failed; the caller receives no reason."""
        _log.warning("OIDC: sign-in failed: %s", why)
        return NotAuthenticated(_FAILED)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
