"""Parameters of a function with resolved annotations, which encode and decode its arguments. Pure."""

import inspect
import re
import typing
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.envelope import NO_KWARGS
from taskmq.model.units import did_you_mean
from taskmq.model.values.annotations import check_type, hints_of, is_injected
from taskmq.model.values.return_type import PLAIN, ReturnType, split_path
from taskmq.model.values.wire_form import Decoder, decoder_of, encode_value

_EMPTY: Final = frozenset({b"", b"{}", b"[]", b"\x80", b"\x90"})
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
IsProvided = Callable[[inspect.Parameter, Any], bool]


class Parameter(msgspec.Struct, frozen=True):
    """A parameter that callers pass."""

    name: str
    kind: Any
    required: bool
    by_position: bool
    by_name: bool


class Rest(msgspec.Struct, frozen=True):
    """The parameter `*args` or `**kwargs`, with the type of each of its values."""

    name: str
    kind: Any


class Parameters(NamedTuple):
    """Parameters that callers pass: positional ones, keyword-only ones, and `*args` or `**kwargs`."""

    positional: list[Parameter]
    named: list[Parameter]
    rest_args: Rest | None
    rest_kwargs: Rest | None


class CompiledSignature:
    """A signature with resolved annotations."""

    __slots__ = (
        "_args_type",
        "_decoders",
        "_is_simple",
        "_kinds",
        "_kwargs_type",
        "by_name",
        "context",
        "named",
        "owner",
        "positional",
        "provided",
        "required",
        "rest_args",
        "rest_kwargs",
        "returns",
        "whole",
    )

    def __init__(self, function: Callable[..., Any], owner: str, injected: type, is_provided: IsProvided) -> None:
        self.owner = owner
        # The caller handles NameError: a name that is defined further down may resolve later.
        hints = hints_of(function, owner)
        self.context: tuple[int, str] | None = None
        self.provided: set[str] = set()
        self.rest_args: Rest | None = None
        self.rest_kwargs: Rest | None = None
        parameters: list[Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            kind: Any = hints.get(parameter.name, Any)
            if is_provided(parameter, kind):
                self.provided.add(parameter.name)
                continue
            if is_injected(kind, injected):
                if self.context is not None:
                    raise InvalidOption(f"task {owner}: only one parameter can be a {injected.__name__}")
                if parameter.kind in _VARIADIC:
                    raise InvalidOption(
                        f"task {owner}: {str(parameter).partition(':')[0]} cannot hold a single value"
                    )
                if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and not all(p.required for p in parameters):
                    raise InvalidOption(
                        f"task {owner}: {parameter.name!r} is passed by position, so it must precede "
                        "parameters with defaults"
                    )
                index = len(parameters) if parameter.kind in _POSITIONAL else -1
                self.context = (index, parameter.name)
                continue
            checked = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Unpack else kind
            check_type(checked, owner=owner, what=f"parameter {parameter.name!r}", refused=injected)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                self.rest_args = Rest(parameter.name, kind)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD and typing.get_origin(kind) is typing.Unpack:
                parameters += _unpack_parameters(kind)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self.rest_kwargs = Rest(parameter.name, kind)
            else:
                parameters.append(
                    Parameter(
                        parameter.name,
                        kind,
                        required=parameter.default is inspect.Parameter.empty,
                        by_position=parameter.kind in _POSITIONAL,
                        by_name=parameter.kind is not inspect.Parameter.POSITIONAL_ONLY,
                    )
                )
        self.positional = [parameter for parameter in parameters if parameter.by_position]
        self.by_name = {parameter.name: parameter for parameter in parameters if parameter.by_name}
        self.named = [parameter for parameter in parameters if not parameter.by_position]
        self.required = sum(parameter.required for parameter in self.positional)
        self.returns = hints.get("return", Any)
        self._args_type = _struct([(f"p{i}", p.kind) for i, p in enumerate(self.positional)], array_like=True)
        self._kwargs_type = _struct([(p.name, p.kind) for p in self.by_name.values()], array_like=False)
        self._decoders: dict[str, tuple[Decoder, Decoder]] = {}
        self._kinds: dict[str, ReturnType] = {}
        # Most calls pass every argument by position and need only one decoder.
        self._is_simple = self.rest_args is None and 0 < self.required == len(parameters) == len(self.positional)
        self.whole: dict[str, Callable[[Raw | bytes], tuple[Any, ...]]] = {}

    def decode(self, args: Raw, kwargs: Raw, content_type: str) -> Arguments:
        """Decode a call into the annotated types.

        Raises:
            InvalidArguments: the arguments do not fit.
        """
        if kwargs is NO_KWARGS and self._is_simple:
            try:
                return (self.whole.get(content_type) or self._make_whole(content_type))(args), {}
            except Exception:  # noqa: BLE001, S110 - the code below reports what does not fit
                pass
        decoders = self._decoders.get(content_type)
        if decoders is None:
            decoders = decoder_of(self._args_type, content_type), decoder_of(self._kwargs_type, content_type)
            self._decoders[content_type] = decoders
        try:
            if self.rest_args is None:
                values = () if _is_empty(args) else msgspec.structs.astuple(decoders[0].decode(args))
                if values and values[-1] is UNSET:
                    values = values[: values.index(UNSET)]
            else:
                values = self._open_args(args, self.rest_args, content_type)
            if kwargs is NO_KWARGS or _is_empty(kwargs):
                if len(values) >= self.required and not self.named:
                    return values, {}
                named: dict[str, Any] = {}
            elif self.rest_kwargs is None:
                named = {
                    name: value
                    for name, value in msgspec.structs.asdict(decoders[1].decode(kwargs)).items()
                    if value is not UNSET
                }
            else:
                named = self._open_kwargs(kwargs, self.rest_kwargs, content_type)
        except InvalidArguments:
            raise
        except Exception as error:  # a type's own __post_init__ or validator may raise anything
            raise InvalidArguments(f"task {self.owner}: {self._readable(error)}") from error
        self._check_bound(len(values), named)
        return values, named

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any], content_type: str) -> tuple[Raw, Raw]:
        """Encode a call without comparing it with the annotated types.

        Raises:
            EncodeError: an argument cannot be encoded; the message names it.
        """
        try:
            raw_args = Raw(encode_value(args, content_type))
            return raw_args, Raw(encode_value(kwargs, content_type)) if kwargs else NO_KWARGS
        except EncodeError as error:
            for name, _, value in self._parts(args, kwargs, 0):
                with self._naming(name):
                    encode_value(value, content_type)
            raise EncodeError(f"task {self.owner}: {error}") from error.__cause__

    def check(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        content_type: str,
        *,
        before: int = 0,
        is_plain: bool = False,
    ) -> None:
        """Check that each argument is equal after encoding and decoding.

        Args:
            before: number of positional arguments before these.
            is_plain: ignore the annotated types and compare as plain data.

        Raises:
            EncodeError: an argument is not; the message names it and says why.
        """
        for name, kind, value in self._parts(args, kwargs, before):
            with self._naming(name):
                (PLAIN if is_plain else kind).encode(value, content_type)

    def _parts(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], before: int
    ) -> Iterator[tuple[str, ReturnType, Any]]:
        """Yield each argument with its name and its type."""
        for index, value in enumerate(args, before):
            if index < len(self.positional):
                parameter: Parameter | Rest | None = self.positional[index]
            else:
                parameter = self.rest_args
            name = f"{self.rest_args.name}[{index - len(self.positional)}]" if self.rest_args else f"[{index}]"
            yield self._part_of(parameter, name, value)
        for name, value in kwargs.items():
            yield self._part_of(self.by_name.get(name) or self.rest_kwargs, name, value)

    def _part_of(self, parameter: Parameter | Rest | None, name: str, value: Any) -> tuple[str, ReturnType, Any]:
        if parameter is None:
            return name, PLAIN, value
        if (kind := self._kinds.get(parameter.name)) is None:
            kind = self._kinds[parameter.name] = ReturnType(parameter.kind)
        return (name if isinstance(parameter, Rest) else parameter.name), kind, value

    @contextmanager
    def _naming(self, name: str) -> Generator[None]:
        try:
            yield
        except EncodeError as error:
            raise EncodeError(f"task {self.owner}: argument {name!r}: {error}") from error.__cause__

    def _make_whole(self, content_type: str) -> Callable[[Raw | bytes], tuple[Any, ...]]:
        kinds: Any = tuple(parameter.kind for parameter in self.positional)
        whole = self.whole[content_type] = decoder_of(tuple.__class_getitem__(kinds), content_type).decode
        return whole

    def _open_args(self, args: Raw, rest: Rest, content_type: str) -> tuple[Any, ...]:
        if _is_empty(args):
            return ()
        count = len(self.positional)
        parts: list[Raw] = decoder_of(list[Raw], content_type).decode(args)
        return tuple(
            self._part(self.positional[i].name, self.positional[i].kind, part, content_type)
            if i < count
            else self._part(f"{rest.name}[{i - count}]", rest.kind, part, content_type)
            for i, part in enumerate(parts)
        )

    def _open_kwargs(self, kwargs: Raw, rest: Rest, content_type: str) -> dict[str, Any]:
        parts: dict[str, Raw] = decoder_of(dict[str, Raw], content_type).decode(kwargs)
        return {
            name: self._part(name, self.by_name[name].kind if name in self.by_name else rest.kind, part, content_type)
            for name, part in parts.items()
        }

    def _part(self, name: str, kind: Any, part: Raw, content_type: str) -> Any:
        try:
            return decoder_of(kind, content_type).decode(part)
        except Exception as error:
            reason, path = split_path(error)
            raise InvalidArguments(f"task {self.owner}: {reason} - at `{name}{path}`") from error

    def _check_bound(self, count: int, named: dict[str, Any]) -> None:
        for i, parameter in enumerate(self.positional):
            if i < count and parameter.by_name and parameter.name in named:
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is passed twice")
            if i >= count and parameter.required and not (parameter.by_name and parameter.name in named):
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is missing")
        for parameter in self.named:
            if parameter.required and parameter.name not in named:
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is missing")
        if self.context is not None and self.context[1] in named:
            raise InvalidArguments(f"task {self.owner}: {self.context[1]!r} is filled in by the worker")
        if self.provided and not self.provided.isdisjoint(named):
            raise self.refusal_of(named)

    def refusal_of(self, named: dict[str, Any]) -> InvalidArguments:
        """Build the error for a call that passes an unknown or injected argument."""
        name = min(self.provided.intersection(named))
        return InvalidArguments(
            f"task {self.owner}: {name!r} is a dependency, which is filled in where the task runs"
        )

    def _readable(self, error: Exception) -> str:
        """Return the decoder's message with the parameter's name instead of `$[2]` or `$.size`."""
        reason, path = split_path(error)
        if path.startswith("["):
            index, _, rest = path[1:].partition("]")
            return f"{reason} - at `{self.positional[int(index)].name}{rest}`"
        if path:
            return f"{reason} - at `{path.removeprefix('.')}`"
        if (unknown := _UNKNOWN_FIELD.fullmatch(reason)) is not None:
            names = [name for name in self.by_name if name not in self.provided]
            hint = did_you_mean(unknown[1], names) if names else "it takes no arguments by name"
            return f"unknown field `{unknown[1]}`: {hint}"
        if reason.partition(",")[0] == f"Expected `array` of at most length {len(self.positional)}":
            return f"too many arguments, it takes {len(self.positional)}"
        return reason


def _unpack_parameters(kind: Any) -> list[Parameter]:
    """Return the parameters that `**kwargs: Unpack[...]` of a TypedDict stands for."""
    (fields,) = typing.get_args(kind)
    hints = typing.get_type_hints(fields, include_extras=False)
    return [
        Parameter(name, each, required=name in fields.__required_keys__, by_position=False, by_name=True)
        for name, each in hints.items()
    ]


def _is_empty(raw: Raw) -> bool:
    data = bytes(raw)
    return len(data) <= 2 and data in _EMPTY


def _struct(fields: list[tuple[str, Any]], *, array_like: bool) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        "Arguments",
        [(name, typing.Union[kind, UnsetType], UNSET) for name, kind in fields],  # noqa: UP007 - a value, not an annotation
        array_like=array_like,
        forbid_unknown_fields=True,
    )
