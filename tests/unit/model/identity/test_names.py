import pytest

from taskmq.errors import InvalidOption
from taskmq.model.identity import check_answerer, check_group, check_name, check_pattern, check_text


@pytest.mark.parametrize("name", ["a", "acme", "Ann.Smith", "a@example.org", "7", "x" * 64, "a-b_c+d"])
def test_a_valid_name_is_unchanged(name: str) -> None:
    assert check_name(name, what="tenant") == name


@pytest.mark.parametrize("name", ["", " ", "*", "@a", "-a", "a b", "x" * 65, "é", "a\n", "a\0", "a/b", "\ud800"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"^tenant '"):
        check_name(name, what="tenant")


def test_a_group_has_any_printable_name_without_space_around_it() -> None:
    for name in ("finance", "/realm/finance team", "x" * 128):
        assert check_group(name) == name
    for name in ("", " a", "a ", "a\nb", "x" * 129):
        with pytest.raises(InvalidOption, match=r"^group '"):
            check_group(name)


def test_a_role_or_a_group_may_answer_a_wait() -> None:
    assert [check_answerer(name) for name in ("operator", "group:finance")] == ["operator", "group:finance"]
    with pytest.raises(InvalidOption, match=r"no role 'finance': known: viewer, .*; a group is group:NAME"):
        check_answerer("finance")
    with pytest.raises(InvalidOption, match=r"^group ''"):
        check_answerer("group:")


@pytest.mark.parametrize("pattern", ["*", "billing.*", "mail.send", "a:b-?"])
def test_a_valid_pattern_is_unchanged(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", "a b", "[a]", "x" * 129, "é", "a\n"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOption, match=r"^task pattern '"):
        check_pattern(pattern)


def test_a_text_is_one_line_of_limited_length() -> None:
    assert check_text("makes anvils ☂", what="description") == "makes anvils ☂"
    for text in ("a\nb", "a\0", "\ud800", "\x7f", "x" * 501):
        with pytest.raises(InvalidOption, match=r"^description: "):
            check_text(text, what="description")
