"""Values as JSON and MessagePack."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_serializer, model_validator

from taskmq.errors import EncodeError
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.wire_form import ENCODERS, decode_value, decoder_of, encode_json, encode_value

_both = pytest.mark.parametrize("content_type", [JSON, MSGPACK])


class _Login(BaseModel):
    user: str
    password: SecretStr


class _Hidden(BaseModel):
    a: int = 0
    b: int = Field(default=0, exclude=True)


class _OneWay(BaseModel):
    size: int

    @field_serializer("size")
    def in_words(self, value: int) -> str:
        return f"{value} bytes"


class _Careful(BaseModel):
    size: int

    @model_validator(mode="before")
    @classmethod
    def check(cls, data: Any) -> Any:
        if data["size"] > 1:
            raise LookupError("no such size")
        return data


class _Outer(BaseModel):
    login: _Login


@_both
def test_a_value_is_read_as_plain_data(content_type: str) -> None:
    assert decode_value(encode_value({"a": [1, None, Path("b")]}, content_type), content_type) == {
        "a": [1, None, "b"]
    }
    assert decode_value(ENCODERS[content_type]([1]), content_type) == [1]


@_both
def test_a_path_is_read_from_its_text_alone(content_type: str) -> None:
    decoder = decoder_of(PurePosixPath, content_type)

    assert decoder.decode(encode_value("a/b", content_type)) == PurePosixPath("a/b")
    with pytest.raises(Exception, match="Expected a path as `str`, got `int`"):
        decoder.decode(encode_value(7, content_type))


@_both
def test_an_object_is_any_plain_data(content_type: str) -> None:
    assert decoder_of(object, content_type).decode(encode_value([1], content_type)) == [1]


@_both
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "a value of type object cannot be encoded: use strings, numbers"),
        (
            _Login(user="a", password=SecretStr("hunter2")),
            "a _Login changes when encoded and decoded: .* - at `password`",
        ),
        ([_Hidden(b=5)], "a _Hidden changes when encoded and decoded: .* - at `b`; give it a serializer"),
        (
            _OneWay(size=7),
            "a _OneWay cannot be decoded from its own encoding: ValidationError in size; make the model",
        ),
        (_Careful.model_construct(size=7), "a _Careful cannot be decoded .*: LookupError in a validator"),
        (_Outer(login=_Login(user="a", password=SecretStr("hunter2"))), "a _Outer changes .* - at `login.password`"),
    ],
    ids=["object", "secret", "excluded", "one way", "own error", "nested"],
)
def test_a_value_that_would_change_on_the_wire_is_refused_by_its_location(
    content_type: str, value: object, words: str
) -> None:
    with pytest.raises(EncodeError, match=words) as refused:
        encode_value(value, content_type)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", [None, 1.5, {"a": [1, "x", (2,), {"b"}]}, b"1", Path("a/b")])
def test_plain_json_matches_the_output_of_encoders(value: object) -> None:
    assert encode_json(value) == encode_value(value, JSON)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "JSON has no NaN"),
        ({"a": [float("inf")]}, "JSON has no NaN and no infinity"),
        ({1: "a"}, "JSON has no keys but texts"),
        (object(), "a value of type object cannot be encoded"),
    ],
)
def test_plain_json_is_refused_if_it_would_not_be_equal(value: object, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        encode_json(value)
