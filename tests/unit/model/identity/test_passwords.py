import pytest

from taskmq.errors import InvalidOption
from taskmq.model.identity import check_password

_KNOWN = {"password", "letmein", "qwertyuiop", "iloveyou", "correcthorse"}


@pytest.mark.parametrize(
    "password",
    ["ostrich lamp violet nine", "ÄÖÜäöü ☂ 1234567", "a1b2c3d4e5f6", "x" * 20 + "abcdefg", "ann likes 7 anvils"],
)
def test_a_password_that_nobody_tries_first_is_accepted(password: str) -> None:
    check_password(password, user="ann", known=_KNOWN)


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("", "too short: at least 12"),
        ("elevenchars", "too short: at least 12"),
        ("x" * 1025, "too long: at most 1024"),
        ("aaaaaaaaaaaaaaaa", "repeats a few characters"),
        ("abababababababab", "repeats a few characters"),
        ("121212121212", "repeats a few characters"),
        ("CorrectHorse", "try first"),
        ("correcthorse1!", "try first"),
        ("Password2026!!", "try first"),
        ("!!!!LetMeIn123", "try first"),
        ("iloveyouiloveyou", "try first"),
        ("qwertyuiop1234567890", "try first"),
        ("ann-ann-ann-ann-2", "repeats a few characters"),
        ("annabelannabel", "user's name"),
        ("taskmqannabel!", "user's name or the product's"),
        ("TaskMQ-TaskMQ-1", "user's name or the product's"),
    ],
)
def test_a_password_that_attackers_try_is_refused_with_the_reason(password: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        check_password(password, user="annabel", known=_KNOWN)


def test_the_reason_does_not_repeat_the_password() -> None:
    with pytest.raises(InvalidOption) as caught:
        check_password("Password2026!!", user="annabel", known=_KNOWN)

    assert "2026" not in str(caught.value)
