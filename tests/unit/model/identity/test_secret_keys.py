import pytest

from taskmq.errors import LimitReached
from taskmq.model.identity import MOST_TOKENS, check_token_count, csrf_token, digest, is_token, session_key, token_key

_RANDOM = bytes(range(32))


def test_a_token_has_a_recognisable_prefix_and_only_its_digest_is_stored() -> None:
    key = token_key(_RANDOM)

    assert key.text == "tmq_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert is_token(key.text)
    assert key.digest == digest(key.text)
    assert len(key.digest) == 32


def test_a_session_secret_is_not_a_token() -> None:
    key = session_key(_RANDOM)

    assert not is_token(key.text)
    assert key.digest == digest(key.text)
    assert key.digest != token_key(_RANDOM).digest


@pytest.mark.parametrize("text", ["", "tmq_", "tmq_x", "tmq_" + "a" * 44, "tmq_" + "é" * 43, "x" * 100_000, "\ud800"])
def test_a_malformed_token_is_refused(text: str) -> None:
    assert not is_token(text)
    assert len(digest(text)) == 32


def test_a_csrf_token_belongs_to_one_session_and_does_not_reveal_its_secret() -> None:
    secret = session_key(_RANDOM).text

    assert csrf_token(secret) == csrf_token(secret)
    assert csrf_token(secret) != csrf_token(secret + "x")
    assert secret not in csrf_token(secret)
    assert csrf_token("\ud800")


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_secret_has_32_random_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        token_key(bytes(size))


def test_the_number_of_tokens_of_a_user_is_limited() -> None:
    check_token_count(MOST_TOKENS - 1)

    with pytest.raises(LimitReached, match="revoke those that no program uses") as caught:
        check_token_count(MOST_TOKENS)
    assert caught.value.most == MOST_TOKENS
