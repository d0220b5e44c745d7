import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.access import PasswordHasher
from taskmq.errors import InvalidOption
from taskmq.model.identity import check_password
from taskmq.model.identity.passwords import guesses_of

_KNOWN = frozenset({"password", "letmein", "qwertyuiop", "iloveyou", "correcthorse", "summer", "dragon", "monkey"})


@pytest.mark.parametrize(
    "password",
    [
        "ostrich lamp violet nine", "ÄÖÜäöü ☂ 1234567", "ann likes 7 anvils", "tr0ub4dor&3 x9", "5d41402abc4b2a76",
        "monkey dragon summer!",
    ],
)  # fmt: skip
def test_an_uncommon_password_is_accepted(password: str) -> None:
    check_password(password, user="ann", known=_KNOWN)


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("", "too short: at least 12"),
        ("elevenchars", "too short: at least 12"),
        ("x" * 1025, "too long: at most 1024"),
        *(
            (each, "easy to guess")
            for each in (
                "aaaaaaaaaaaaaaaa", "abababababababab", "121212121212", "CorrectHorse", "correcthorse1!",
                "Password2026!!", "!!!!LetMeIn123", "iloveyouiloveyou", "qwertyuiop1234567890", "ann-ann-ann-ann-2",
                "annabelannabel", "taskmqannabel!", "TaskMQ-TaskMQ-1", "123456789012", "987654321098",
                "012345678901", "zaq12wsxcde3", "!QAZ2wsx3edc", "1qaz@WSX3edc$RFV", "1qaz2wsx3edc4rfv5tgb",
                "taskmq2026!!", "Passw0rd!Passw0rd!", "P@$$w0rd2026!", "drowssap2026!!", "Summer2026!!",
                "dragonmonkey1", "abcdefghijklm", "zyxwvutsrqpo", "wxyzabcdefgh",
                "x" * 20 + "abcdefg", "2019202020212022", "LetMeInLetMeIn", "annabel-taskmq-2026", "x" * 1024,
                "qw" * 512,
            )
        ),
    ],
)  # fmt: skip
def test_a_common_password_is_refused_with_the_reason(password: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        check_password(password, user="annabel", known=_KNOWN)


@pytest.mark.parametrize("password", ["a1b2c3d4e5f6", "q1w2e3r4t5y6", "1qaz2wsx3edc4rfv", "superman-superman"])
def test_known_passwords_and_repetitions_of_them_are_refused(password: str) -> None:
    with pytest.raises(InvalidOption, match="easy to guess"):
        PasswordHasher().check(password, user="annabel")


def test_the_reason_does_not_repeat_the_password() -> None:
    with pytest.raises(InvalidOption) as caught:
        check_password("Password2026!!", user="annabel", known=_KNOWN)

    assert "2026" not in str(caught.value)


@pytest.mark.parametrize("user", ["", "a", "ab"])
def test_a_name_of_a_letter_or_two_makes_no_password_weaker(user: str) -> None:
    check_password("abba cab dab grab", user=user, known=_KNOWN)


@given(st.integers(0, 2**64), st.integers(4, 12))
def test_random_words_are_accepted(seed: int, count: int) -> None:
    chance = random.Random(seed)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(5, 9))) for _ in range(count)]

    PasswordHasher().check(" ".join(words), user="annabel")


@given(st.integers(0, 2**64), st.sampled_from([string.ascii_lowercase, string.ascii_letters, string.printable[:94]]))
def test_random_characters_are_accepted_from_sixteen_on(seed: int, alphabet: str) -> None:
    PasswordHasher().check("".join(random.Random(seed).choices(alphabet, k=16)), user="annabel")


@given(st.text(min_size=1, max_size=40))
def test_every_text_takes_guesses_and_at_most_those_of_its_characters(text: str) -> None:
    assert 0 < guesses_of(text, known=_KNOWN) <= 2.0 * len(text.casefold())


@given(st.sampled_from(sorted(_KNOWN)), st.sampled_from(["", "1", "!!", "2026", "123"]), st.integers(2, 20))
def test_repeating_a_known_password_never_makes_it_good(word: str, end: str, times: int) -> None:
    assert guesses_of((word + end) * times, known=_KNOWN) < 10
