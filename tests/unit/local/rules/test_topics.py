from hypothesis import given
from hypothesis import strategies as st

from taskmq_local.rules.topics import matcher

patterns = st.lists(st.sampled_from(["a", "b", "*", "#", "+"]), min_size=1, max_size=5)
topics = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=5)


def fits(pattern: list[str], topic: list[str]) -> bool:
    """Match as AMQP describes it."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return fits(pattern[1:], topic) or (bool(topic) and fits(pattern, topic[1:]))
    return bool(topic) and pattern[0] in ("*", topic[0]) and fits(pattern[1:], topic[1:])


@given(st.lists(patterns, max_size=3), topics)
def test_a_topic_matches_as_in_a_topic_exchange(several: list[list[str]], topic: list[str]) -> None:
    expected = any(fits(pattern, topic) for pattern in several)

    assert matcher([".".join(pattern) for pattern in several])(".".join(topic)) is expected


def test_a_star_is_one_word_and_a_hash_any_number() -> None:
    is_meant = matcher(["a.*", "b.#.c"])

    assert all(map(is_meant, ["a.x", "b.c", "b.x.y.c"]))
    assert not any(map(is_meant, ["a", "a.x.y", "b.x"]))


def test_a_pattern_without_wildcards_is_one_topic() -> None:
    is_meant = matcher(["worker.answer.1"])

    assert is_meant("worker.answer.1")
    assert not is_meant("worker.answer.12")
    assert not is_meant("workerXanswer.1")
