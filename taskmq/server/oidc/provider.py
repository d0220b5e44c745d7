"""The provider: where it sends browsers, and what it says about who comes back."""

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

__all__ = ["OidcProvider", "PendingLogin", "ProvidedUser"]

_log = logging.getLogger("taskmq.server")

# Signatures by the provider's private key: one that is made with our own secret, or with nothing, is no signature.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_KEPT_SECONDS: Final = 3600.0
_BETWEEN_KEYS: Final = 10.0
_TIMEOUT: Final = 10.0
_LEEWAY: Final = 60
_FAILED: Final = "the sign-in has failed: begin it again"


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that has begun: what its browser keeps meanwhile.

    Attributes:
        state: that the provider gives back; of this browser, so that no other site signs it in as another user.
        nonce: that the ID token has, so that none of another sign-in is taken.
        verifier: of the challenge that the provider has, so that a code is of no use to who reads it.
        next: where the browser goes in the end.
    """

    state: str
    nonce: str
    verifier: str
    next: str


class ProvidedUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who has signed in at the provider; `subject` is theirs for good there, everything else may change."""

    subject: str
    name: str
    email: str
    groups: frozenset[str]


class _Discovered(msgspec.Struct, frozen=True):
    """What is used of a provider's description of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class OidcProvider:
    """One provider, asked by one server.

    Args:
        http: a client of httpx of one's own, for proxies and certificates.

    Raises:
        UnsupportedFeature: what it takes is not installed.
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
        """Where the provider sends browsers back to; to be registered there."""
        return f"{self.settings.public_url.rstrip('/')}{API}/auth/oidc/callback"

    async def begin(self, following: str) -> tuple[PendingLogin, str]:
        """Begin a sign-in: what the browser is to keep, and where it is to go.

        Raises:
            ServerUnavailable: the provider does not answer.
        """
        found = await self._described()
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
        """Who has signed in.

        Args:
            answer: the parameters that the provider has sent the browser back with.

        Raises:
            NotAuthenticated: no user, or not in answer to this sign-in.
            NotPermitted: the provider has refused it.
            ServerUnavailable: the provider does not answer.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(errors="replace"), pending.state.encode()):
            raise self._failure("the state is not that of the browser")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise self._failure("the answer is of another issuer")
        if "error" in answer:
            _log.warning("OIDC: the provider has refused a sign-in: %s", answer["error"][:80].encode())
            raise NotPermitted("the provider has refused the sign-in")
        if not answer.get("code"):
            raise self._failure("there is no code")
        claims = await self._claims(await self._exchanged(answer["code"], pending), pending)
        return self._user_of(claims)

    async def _exchanged(self, code: str, pending: PendingLogin) -> str:
        """The ID token for a code."""
        found = await self._described()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.callback,
            "code_verifier": pending.verifier,
        }
        secret = self.settings.client_secret
        headers: dict[str, str] = {}
        if secret and "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            # Both are quoted first: RFC 6749, 2.3.1.
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.settings.client_id} | ({"client_secret": secret} if secret else {})
        try:
            response = await self._http.post(found.token_endpoint, data=form, headers=headers)
        except self._transport_errors as error:
            raise self._unreached(error) from error
        if response.status_code >= 500:
            raise self._unreached(f"status {response.status_code}")
        try:
            return msgspec.json.decode(response.content, type=_Tokens).id_token
        except msgspec.MsgspecError:
            raise self._failure(f"no ID token for the code: status {response.status_code}") from None

    async def _claims(self, token: str, pending: PendingLogin) -> Mapping[str, Any]:
        """What a token says, once everything about it is right."""
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
            raise self._failure(f"the ID token is not good: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(errors="replace"), pending.nonce.encode()):
            raise self._failure("the nonce is not that of this sign-in")
        # Of several audiences, it has to be for us that it was made.
        if claims.get("azp", self.settings.client_id) != self.settings.client_id:
            raise self._failure("the ID token is for another client")
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
        """The provider's key of that name; its keys are fetched again where there is none, as after a rotation."""
        now = self._clock.monotonic()
        is_old = self._keys_at is None or now - self._keys_at > _KEPT_SECONDS
        # Invented names have the keys fetched now and then, and not each time.
        may_fetch = self._keys_at is None or now - self._keys_at >= _BETWEEN_KEYS
        if is_old or (name not in self._keys and may_fetch):
            found = await self._described()
            document = await self._fetched(found.jwks_uri)
            try:
                keys = self._jwt.PyJWKSet.from_json(document.decode()).keys
            except (ValueError, self._jwt.PyJWTError) as error:
                raise self._unreached(error) from error
            self._keys = {key.key_id or "": key for key in keys if key.public_key_use in (None, "sig")}
            self._keys_at = now
        if not name and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys:
            raise self._failure("the ID token is signed by a key that the provider does not have")
        return self._keys[name]

    async def _described(self) -> _Discovered:
        now = self._clock.monotonic()
        if self._discovered is not None and now - self._discovered[1] < _KEPT_SECONDS:
            return self._discovered[0]
        document = await self._fetched(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        try:
            found = msgspec.json.decode(document, type=_Discovered)
        except msgspec.MsgspecError as error:
            raise self._unreached(error) from error
        if found.issuer != self.settings.issuer:
            raise self._unreached(f"it calls itself {found.issuer!r}")
        try:
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                check_provider_url("endpoint", url)
        except InvalidSetting as error:
            raise self._unreached(error) from error
        self._discovered = (found, now)
        return found

    async def _fetched(self, url: str) -> bytes:
        try:
            response = await self._http.get(url)
            response.raise_for_status()
        except self._transport_errors as error:
            raise self._unreached(error) from error
        content: bytes = response.content
        return content

    def _unreached(self, why: object) -> ServerUnavailable:
        _log.warning("OIDC: the provider %s cannot be used: %s", self.settings.issuer, why)
        return ServerUnavailable("the sign-in provider does not answer as it has to")

    def _failure(self, why: str) -> NotAuthenticated:
        """What is wrong is in the log, and not said to who tries."""
        _log.warning("OIDC: a sign-in has failed: %s", why)
        return NotAuthenticated(_FAILED)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
