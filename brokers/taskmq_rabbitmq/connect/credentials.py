"""Credentials with which connections log in, as pika presents them to the broker.

User and password, and a client certificate (`auth=external`), do not change; a token is renewed (`token_holder`).
No secret is part of a message, a log line or a repr.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.amqp.pika_types import ExternalCredentials, PlainCredentials
from taskmq_rabbitmq.connect.token_holder import TokenHolder
from taskmq_rabbitmq.model.tokens import Token

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Start

# RabbitMQ's limit of a frame before the login, by the first version that has it; and the rest of that frame.
_FRAME: Final = 4096
_LARGER_FRAME: Final = ((4, 1), 8192)
_BESIDE: Final = 480


class LoginCredentials:
    """Credentials of one attempt to connect, for pika.

    Attributes:
        secret: the password or token.
        remedy: what to do if the broker refuses them.
        problem: why they were not even sent, once that is known.
    """

    def __init__(self, secret: str, remedy: str) -> None:
        self.secret = secret
        self.remedy = remedy
        self.problem: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: object) -> "LoginCredentials":
        # pika copies its credentials, and only the copy would get the problem.
        return self

    def _is_offered(self, start: "Start", mechanism: str) -> bool:
        offered = _text(start.mechanisms).split()
        if mechanism not in offered:
            plugin = "; it needs the plugin rabbitmq_auth_mechanism_ssl" if mechanism == "EXTERNAL" else ""
            self.problem = f"the broker offers {', '.join(offered)} for the login, but not {mechanism}{plugin}"
        return self.problem is None


class PasswordCredentials(LoginCredentials, PlainCredentials):
    """User and password, or a token as the password."""

    def __init__(self, user: str, secret: str, remedy: str) -> None:
        PlainCredentials.__init__(self, user, secret)
        LoginCredentials.__init__(self, secret, remedy)

    def response_for(self, start: "Start") -> tuple[str | None, bytes | None]:
        """Return the SASL mechanism and response for pika."""
        answer = b"\0" + self.username.encode() + b"\0" + self.secret.encode()
        limit = _frame_limit(start)
        if self._is_offered(start, "PLAIN") and len(answer) + _BESIDE > limit:
            self.problem = (
                f"the token has {len(self.secret):,} bytes, but a login at this broker may have {limit:,} in total: "
                "ask for a token with fewer scopes or claims, or upgrade to RabbitMQ 4.1 (8,192)"
            )
        return (None, None) if self.problem is not None else ("PLAIN", answer)


class CertificateCredentials(LoginCredentials, ExternalCredentials):
    """The client certificate, which TLS has presented."""

    def __init__(self) -> None:
        ExternalCredentials.__init__(self)
        LoginCredentials.__init__(self, "", "create a user with the name in the certificate (`ssl_cert_login_from`)")

    def response_for(self, start: "Start") -> tuple[str | None, bytes | None]:
        """Return the SASL mechanism and response for pika."""
        return ("EXTERNAL", b"") if self._is_offered(start, "EXTERNAL") else (None, None)


Answer = PasswordCredentials | CertificateCredentials | BrokerUnavailable


class CredentialSource(TokenHolder):
    """The credentials of one broker object, for its event loop."""

    def current(self, then: Callable[[Answer], None]) -> None:
        """Call `then` with credentials, or with why there are none; soon, or once a token has been fetched."""

        def answer(token: Token | BrokerUnavailable) -> None:
            then(token if isinstance(token, BrokerUnavailable) else self._credentials(token))

        self.token(answer)

    def _credentials(self, token: Token) -> PasswordCredentials | CertificateCredentials:
        endpoint = self._endpoint
        if endpoint.auth == "external":
            return CertificateCredentials()
        if endpoint.token is None:
            remedy = "check the user, the password and the user's access to the virtual host"
            return PasswordCredentials(endpoint.user, token.secret, remedy)
        return PasswordCredentials(endpoint.user, token.secret, self.remedy(token))


def _frame_limit(start: "Start") -> int:
    version = _text((start.server_properties or {}).get("version"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    first, larger = _LARGER_FRAME
    return larger if numbers >= first else _FRAME


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
