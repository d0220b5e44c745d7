"""Facts in RabbitMQ's refusal messages."""

import asyncio

import pytest

from taskmq.errors import AccessDenied, BrokerUnavailable, PublishRejected, PublishUnknown, SendError, TooLarge
from taskmq.testing.broker_suite import message
from taskmq_rabbitmq.model.access_refused import access_error, denies_connection, exceeded_size, refused_exchange
from taskmq_rabbitmq.publish.pending import Pending
from taskmq_rabbitmq.publish.refusals import error_for, find_refused

NO_WRITE = "ACCESS_REFUSED - write access to exchange 'taskmq.delay.v2.l03' in vhost 'shop' refused for user 'web'"
NO_WRITE_310 = "ACCESS_REFUSED - access to exchange 'taskmq.delay.v2.l03' in vhost 'shop' refused for user 'web'"
NO_TOPIC = (
    "ACCESS_REFUSED - write access to topic '0.1.q' in exchange 'taskmq.delay.v2.l03' in vhost 'shop' refused "
    "for user 'web'"
)
TOO_LARGE = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1500"
TOO_LARGE_EVER = "PRECONDITION_FAILED - message size 2000 larger than max size 1500"
NO_EXCHANGE = "NOT_FOUND - no exchange 'taskmq.delay.v2.l03' in vhost 'shop'"


@pytest.mark.parametrize(
    "reply",
    [
        "ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.'",
        "ConnectionClosedByBroker: (530) \"NOT_ALLOWED - access to vhost 'shop' refused for user 'web'\"",
        "ConnectionClosedByBroker: (530) 'NOT_ALLOWED - vhost shop not found'",
    ],
)
def test_user_password_and_virtual_host_are_access_errors(reply: str) -> None:
    assert denies_connection(f"ProbableAccessDeniedError: {reply}")


@pytest.mark.parametrize(
    "reply",
    [
        "(530) \"NOT_ALLOWED - access to vhost 'shop' refused for user 'web': connection limit (1) is reached\"",
        "(541) \"INTERNAL_ERROR - access to vhost 'shop' refused for user 'web': vhost 'shop' is down\"",
        "(320) \"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'\"",
        "StreamLostError: ('Transport indicated EOF',)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
    ],
)
def test_a_broker_that_is_full_or_down_or_gone_is_not_an_access_error(reply: str) -> None:
    assert not denies_connection(f"ProbableAccessDeniedError: {reply}")


def test_an_exclusive_queue_is_not_a_lack_of_permission() -> None:
    exclusive = access_error("ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")

    assert type(exclusive) is BrokerUnavailable
    assert type(access_error(NO_WRITE)) is AccessDenied


@pytest.mark.parametrize("text", [NO_WRITE, NO_WRITE_310, NO_TOPIC, NO_EXCHANGE])
def test_the_exchange_is_read_from_the_message_of_each_version(text: str) -> None:
    assert refused_exchange(text) == "taskmq.delay.v2.l03"
    assert exceeded_size(text) is None


def test_the_default_exchange_has_another_name_there() -> None:
    assert refused_exchange("write access to exchange 'amq.default' in vhost '/' refused for user 'web'") == ""
    assert refused_exchange("no") is None


@pytest.mark.parametrize("text", [TOO_LARGE, TOO_LARGE_EVER])
def test_size_and_limit_are_read(text: str) -> None:
    assert exceeded_size(text) == (2000, 1500)


class TestRefusedMessage:
    @pytest.fixture(autouse=True)
    def _loop(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.close()

    def pending(self, exchange: str = "", size: int = 5, *, refusals: int = 1, uncertain: bool = False) -> Pending:
        pending = Pending(message("q", b"x" * size), self.loop.create_future(), 0.0)
        pending.exchange = exchange
        pending.refusals = refusals
        pending.uncertain = uncertain
        return pending

    def test_a_refusal_concerns_the_first_message_to_its_exchange(self) -> None:
        pendings = [self.pending(), self.pending("taskmq.delay.v2.l03"), self.pending("taskmq.delay.v2.l03")]

        assert find_refused(pendings, NO_WRITE) is pendings[1]

    def test_a_refusal_concerns_the_message_of_its_size(self) -> None:
        pendings = [self.pending(size=size) for size in (1, 1999, 2000, 2001)]

        assert find_refused(pendings, TOO_LARGE) is pendings[2]

    def test_a_refusal_concerns_the_only_message(self) -> None:
        assert find_refused([only := self.pending()], "no") is only

    def test_the_refused_message_is_not_guessed(self) -> None:
        assert find_refused([], NO_WRITE) is None
        assert find_refused([self.pending(), self.pending()], "no") is None
        assert find_refused([self.pending(), self.pending()], NO_WRITE) is None
        assert find_refused([self.pending(), self.pending()], TOO_LARGE) is None

    @pytest.mark.parametrize(
        ("code", "text", "kind"),
        [(403, NO_WRITE, AccessDenied), (406, TOO_LARGE, TooLarge), (403, "no", AccessDenied)],
    )
    def test_an_attempt_ends_at_once_if_another_is_useless(self, code: int, text: str, kind: type[SendError]) -> None:
        assert type(error_for(self.pending(), code, text)) is kind

    def test_a_message_is_published_again_after_a_repair(self) -> None:
        assert error_for(self.pending(refusals=1), 404, NO_EXCHANGE) is None
        assert error_for(self.pending(refusals=2), 404, NO_EXCHANGE) is None
        assert type(error_for(self.pending(refusals=3), 404, NO_EXCHANGE)) is PublishRejected

    def test_a_message_may_have_arrived_if_its_connection_was_lost(self) -> None:
        assert type(error_for(self.pending(uncertain=True), 403, NO_WRITE)) is PublishUnknown
        assert type(error_for(self.pending(uncertain=True, refusals=3), 404, NO_EXCHANGE)) is PublishUnknown
        # Refused for certain, whatever its connection did.
        assert type(error_for(self.pending(uncertain=True), 406, TOO_LARGE)) is TooLarge
