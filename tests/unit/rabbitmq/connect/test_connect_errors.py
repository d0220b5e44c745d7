import pytest

from taskmq_rabbitmq.connect.connect_errors import explain, find_tls_problem

_VERIFY = "SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
_ALERT = "IncompatibleProtocolError: StreamLostError: (\"Stream connection lost: SSLError(1, '[SSL: {}] ...')\",)"


@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        (f"{_VERIFY}: Hostname mismatch, certificate is not valid for 'h'.", "not for this host"),
        (f"{_VERIFY}: IP address mismatch, certificate is not valid for '127.0.0.1'.", "not for this host"),
        (f"{_VERIFY}: certificate has expired", "has expired"),
        (f"{_VERIFY}: certificate is not yet valid", "compare the clocks"),
        (f"{_VERIFY}: self-signed certificate in certificate chain", "cafile"),
        (_ALERT.format("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "certfile"),
        (_ALERT.format("TLSV1_ALERT_UNKNOWN_CA"), "refuses the client certificate"),
        (_ALERT.format("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "refuses the client certificate"),
        (_ALERT.format("TLSV1_ALERT_PROTOCOL_VERSION"), "no TLS 1.2"),
        ("SSLError: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "speaks no TLS"),
    ],
)
def test_a_permanent_failure_is_reported_in_words(failure: str, meaning: str) -> None:
    found = find_tls_problem(failure)

    assert found is not None
    assert meaning in found
    assert failure in explain(failure)


def test_a_port_that_hangs_up_may_require_tls() -> None:
    failure = "IncompatibleProtocolError: StreamLostError: ('Transport indicated EOF',)"

    assert find_tls_problem(failure) is None
    assert "amqps://" in explain(failure)


@pytest.mark.parametrize(
    "failure",
    [
        "AMQPConnectorStackTimeout: Timeout while setting up AMQP to '127.0.0.1'/('127.0.0.1', 5672); ssl=False",
        "AMQPConnectorStackTimeout: Timeout during AMQP handshake'127.0.0.1'/('127.0.0.1', 5672); ssl=False",
    ],
)
def test_a_node_that_accepts_and_stays_silent_may_lack_file_handles(failure: str) -> None:
    found = explain(failure)

    assert "file handles" in found
    assert "LimitNOFILE" in found
    assert failure in found


def test_other_failures_are_unchanged() -> None:
    assert explain("ConnectionResetError: [Errno 104]") == "ConnectionResetError: [Errno 104]"
