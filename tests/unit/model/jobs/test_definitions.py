from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.jobs.definitions import DefinitionContent, decode_content, encode_content, merge_call

_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_contents = st.builds(
    DefinitionContent,
    task=_texts,
    args=st.lists(_values, max_size=3),
    kwargs=st.dictionaries(_texts, _values, max_size=3),
    queue=_texts,
    priority=st.none() | st.integers(0, 9),
    expires=st.none() | st.integers(0, 2**50),
    labels=st.dictionaries(_texts, _texts, max_size=3),
    description=_texts,
    owner=_texts,
)


@given(_contents)
def test_a_content_survives_its_round_trip_and_has_one_text(content: DefinitionContent) -> None:
    text = encode_content(content)

    assert decode_content(text) == content
    assert encode_content(decode_content(text)) == text


@given(_contents)
def test_the_text_does_not_depend_on_the_order_of_the_arguments(content: DefinitionContent) -> None:
    turned: dict[str, Any] = dict(reversed(content.kwargs.items()))

    other = DefinitionContent(
        task=content.task,
        args=content.args,
        kwargs=turned,
        queue=content.queue,
        priority=content.priority,
        expires=content.expires,
        labels=content.labels,
        description=content.description,
        owner=content.owner,
    )

    assert encode_content(other) == encode_content(content)


def test_an_encoded_content_is_json_with_sorted_arguments() -> None:
    content = DefinitionContent(task="t", kwargs={"b": 1, "a": None})

    text = encode_content(content)

    assert b'"kwargs":{"a":null,"b":1}' in text
    assert decode_content(text) == content


def test_given_arguments_override_those_of_the_definition() -> None:
    content = DefinitionContent(task="t", args=[1, 2], kwargs={"a": 1, "b": 2})

    assert merge_call(content, (), {}) == ((1, 2), {"a": 1, "b": 2})
    assert merge_call(content, (3,), {"b": 4, "c": 5}) == ((3,), {"a": 1, "b": 4, "c": 5})
