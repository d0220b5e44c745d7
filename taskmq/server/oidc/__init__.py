"""Sign-in with an OpenID Connect provider: authorization code with PKCE, and roles from groups.

    /auth/oidc/login -> the provider, with state, nonce and challenge, which the browser keeps in a cookie
    /auth/oidc/callback -> state checked -> code for an ID token -> signature, issuer, audience, nonce, times
        -> user (by issuer and subject) and roles (by groups) -> a session, as with a password

The process keeps only the provider's keys, so any server can handle the callback. Needs `pip install 'taskmq[oidc]'`.
"""

from taskmq.server.oidc.handlers import OIDC_HANDLERS
from taskmq.server.oidc.provider import OidcProvider
from taskmq.server.oidc.settings import GroupRole, OidcSettings

__all__ = ["OIDC_HANDLERS", "GroupRole", "OidcProvider", "OidcSettings"]
