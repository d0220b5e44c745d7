import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.model.tokens import Token, TokenError, next_look, read_answer, read_token
from tests.servers.tokens import signed_token

NOW = 1_000_000.0

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["exp", "a"]), inner, max_size=2),
    max_leaves=5,
)


def _jwt(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2lnbmVk"


def test_a_token_contains_its_expiry() -> None:
    assert read_token(_jwt({"exp": 1234})) == Token(_jwt({"exp": 1234}), 1234.0)
    assert read_token(f"\n {_jwt({'exp': 1234.5})}\n").expires == 1234.5


def test_tokens_of_taskmq_are_read() -> None:
    expires = read_token(signed_token(seconds=60)).expires

    assert expires is not None
    assert expires == int(expires)


@pytest.mark.parametrize("claims", [{}, {"exp": None}, {"exp": True}, {"exp": "1"}, {"exp": -1}, {"exp": 1e300}, []])
def test_a_token_without_a_usable_expiry_has_none(claims: object) -> None:
    assert read_token(_jwt(claims)).expires is None


def test_a_password_is_a_token_that_does_not_expire() -> None:
    assert read_token("correct horse.battery.staple\n") == Token("correct horse.battery.staple")


@given(claims=jsons)
def test_a_token_is_read_with_any_claims(claims: object) -> None:
    expires = read_token(_jwt(claims)).expires

    assert expires is None or 0 < expires < 1e12


@given(text=st.text(max_size=40))
def test_any_text_is_a_token_or_an_error_that_hides_it(text: str) -> None:
    secret, shown = f"Q7x{text}Q7x", ""
    try:
        assert read_token(secret).secret == secret
    except TokenError as error:
        shown = str(error)
    assert "Q7x" not in shown


def test_an_empty_file_or_one_with_many_lines_is_not_a_token() -> None:
    with pytest.raises(TokenError, match="empty"):
        read_token(" \n")
    with pytest.raises(TokenError, match="one line"):
        read_token("a\nb")
    with pytest.raises(TokenError, match="one line"):
        read_token("a" * 100_000)


def test_the_secret_is_not_shown() -> None:
    assert "S3CRET" not in repr(Token("S3CRET", 1.0))


def test_the_answer_of_a_token_server_is_parsed() -> None:
    opaque = json.dumps({"access_token": "abc", "expires_in": 60, "token_type": "Bearer"}).encode()
    telling = json.dumps({"access_token": _jwt({"exp": 1234}), "expires_in": 60}).encode()

    assert read_answer(opaque, now=NOW) == Token("abc", NOW + 60)
    assert read_answer(telling, now=NOW).expires == 1234
    assert read_answer(b'{"access_token": "abc"}', now=NOW).expires is None


@pytest.mark.parametrize("answer", [b"", b"abc", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": ""}'])
def test_an_answer_without_a_token_is_refused(answer: bytes) -> None:
    with pytest.raises(TokenError):
        read_answer(answer, now=NOW)


def test_a_new_token_is_renewed_at_four_fifths_of_its_lifetime() -> None:
    assert next_look(Token("t", NOW + 100), now=NOW, is_new=True) == 80


def test_an_old_token_is_checked_at_shrinking_intervals() -> None:
    token, now = Token("t", NOW + 100), NOW + 80
    looks: list[float] = []
    while now < NOW + 110:
        delay = next_look(token, now=now, is_new=False)
        assert delay is not None
        now += delay
        looks.append(delay)

    assert looks[0] == 5
    before = [delay for delay in looks if delay < 5]
    assert before == sorted(before, reverse=True)
    assert min(looks) == 1
    assert looks[-1] == 5


def test_a_token_that_does_not_expire_is_not_renewed() -> None:
    assert next_look(Token("t"), now=NOW, is_new=True) is None


@given(left=st.floats(-1e9, 1e9), is_new=st.booleans())
def test_the_next_check_is_soon_enough_and_not_immediate(left: float, is_new: bool) -> None:
    token = Token("t", NOW + left)
    assert token.expires is not None
    delay = next_look(token, now=NOW, is_new=is_new)

    # The precision of floats, which is coarse so long after 1970.
    left = token.expires - NOW
    assert delay is not None
    assert 1 <= delay <= 86_400
    assert delay <= max(left * 0.8, 5)
