"""From a Python call to bytes and back, by the task's own signature. Pure.

Arguments are encoded as they are and decoded straight into the annotated types (msgspec: dataclasses,
Structs, datetimes, UUIDs, enums, tuples, unions, ...; paths as strings; pydantic models by their own
methods). What the worker would refuse is refused before it is sent: `encode` decodes what it has written.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.envelope import JSON, MSGPACK, NO_KWARGS
from taskmq.model.units import did_you_mean

__all__ = ["Arguments", "Parameter", "Parameters", "Rest", "ReturnType", "Signature", "decode_value", "encode_value"]

_EMPTY: Final = frozenset({b"", b"{}", b"[]", b"\x80", b"\x90"})
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_IsProvided = Callable[[inspect.Parameter, Any], bool]


class _Decoder(Protocol):
    def decode(self, data: Any, /) -> Any: ...


def _encode_hook(value: object) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    kind = type(value)
    dump: Callable[..., Any] | None = getattr(kind, "model_dump", None)
    if dump is None:
        raise TypeError(
            f"a value of type {kind.__qualname__} has no form on the wire: use texts, numbers, lists, dictionaries, "
            "dataclasses or pydantic models"
        )
    return dump(value, mode="json")


def _decode_hook(kind: Any, value: Any) -> Any:
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError(f"Expected a path as `str`, got `{type(value).__name__}`")
    return kind.model_validate(value)


_json_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)


def encode_value(value: object, content_type: str) -> bytes:
    """`value` in the given content type.

    Raises:
        EncodeError: it has no form on the wire.
    """
    encoder = _msgpack_encoder if content_type == MSGPACK else _json_encoder
    try:
        return encoder.encode(value)
    except Exception as error:  # a model's own serializer may raise anything
        raise EncodeError(str(error)) from error


def decode_value(data: bytes, content_type: str) -> Any:
    """The value in `data` as plain dictionaries, lists, strings and numbers."""
    return _decoder(Any, content_type).decode(data)


def _decoder(kind: Any, content_type: str) -> _Decoder:
    if content_type == MSGPACK:
        return cast("_Decoder", msgspec.msgpack.Decoder(kind, dec_hook=_decode_hook))
    return cast("_Decoder", msgspec.json.Decoder(kind, dec_hook=_decode_hook))


class ReturnType:
    """What a task returns."""

    __slots__ = ("_decoders", "_kind")

    def __init__(self, kind: Any) -> None:
        self._kind = Any if kind is None or kind is inspect.Parameter.empty else kind
        self._decoders: dict[str, _Decoder] = {}

    def decode(self, data: bytes, content_type: str) -> Any:
        """The value in `data`, of the annotated type.

        Raises:
            EncodeError: it does not fit the type, for example because the task has changed since.
        """
        if (decoder := self._decoders.get(content_type)) is None:
            decoder = self._decoders[content_type] = _decoder(self._kind, content_type)
        try:
            return decoder.decode(data)
        except Exception as error:  # a type's own __post_init__ or validator may raise anything
            raise EncodeError(f"the stored result does not fit the task's return type: {error}") from error


class Parameter(msgspec.Struct, frozen=True):
    """One that a caller gives."""

    name: str
    kind: Any
    required: bool
    by_position: bool
    by_name: bool


class Rest(msgspec.Struct, frozen=True):
    """What `*args` or `**kwargs` takes, each of it."""

    name: str
    kind: Any


class Parameters(NamedTuple):
    """What a caller gives: by position, by name alone, and what takes all the others."""

    positional: list[Parameter]
    named: list[Parameter]
    rest_args: Rest | None
    rest_kwargs: Rest | None


class _Compiled:
    """A signature whose annotations are resolved."""

    __slots__ = (
        "_args_type",
        "_decoders",
        "_is_simple",
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

    def __init__(self, function: Callable[..., Any], owner: str, injected: type, is_provided: _IsProvided) -> None:
        self.owner = owner
        # NameError goes to the caller: a name that is defined further down may resolve later.
        hints = _hints(function, owner)
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
            if _is_injected(kind, injected):
                if self.context is not None:
                    raise InvalidOption(f"task {owner}: only one parameter can be a {injected.__name__}")
                if parameter.kind in _VARIADIC:
                    raise InvalidOption(f"task {owner}: {str(parameter).partition(':')[0]} is no place for one value")
                if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and not all(p.required for p in parameters):
                    raise InvalidOption(
                        f"task {owner}: {parameter.name!r} is given by position, so it has to stand before "
                        "parameters with defaults"
                    )
                index = len(parameters) if parameter.kind in _POSITIONAL else -1
                self.context = (index, parameter.name)
                continue
            _check_type(kind, owner=owner, what=f"parameter {parameter.name!r}", refused=injected)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                self.rest_args = Rest(parameter.name, kind)
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
        self._decoders: dict[str, tuple[_Decoder, _Decoder]] = {}
        # Calls by position alone, which are most, need one decoder for all of it.
        self._is_simple = self.rest_args is None and 0 < self.required == len(parameters) == len(self.positional)
        self.whole: dict[str, Callable[[Raw | bytes], tuple[Any, ...]]] = {}

    def decode(self, args: Raw, kwargs: Raw, content_type: str) -> Arguments:
        if kwargs is NO_KWARGS and self._is_simple:
            try:
                return (self.whole.get(content_type) or self._make_whole(content_type))(args), {}
            except Exception:  # noqa: BLE001, S110 - what does not fit is said below
                pass
        decoders = self._decoders.get(content_type)
        if decoders is None:
            decoders = _decoder(self._args_type, content_type), _decoder(self._kwargs_type, content_type)
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

    def place_without_form(self, args: Sequence[object], kwargs: Mapping[str, object], content_type: str) -> str:
        """The first argument that has no form on the wire, as the beginning of an error."""
        for name, value in (*zip((p.name for p in self.positional), args, strict=False), *kwargs.items()):
            try:
                encode_value(value, content_type)
            except EncodeError:
                return f"argument {name!r}: "
        return ""

    def _make_whole(self, content_type: str) -> Callable[[Raw | bytes], tuple[Any, ...]]:
        kinds: Any = tuple(parameter.kind for parameter in self.positional)
        whole = self.whole[content_type] = _decoder(tuple.__class_getitem__(kinds), content_type).decode
        return whole

    def _open_args(self, args: Raw, rest: Rest, content_type: str) -> tuple[Any, ...]:
        if _is_empty(args):
            return ()
        count = len(self.positional)
        parts: list[Raw] = _decoder(list[Raw], content_type).decode(args)
        return tuple(
            self._part(self.positional[i].name, self.positional[i].kind, part, content_type)
            if i < count
            else self._part(f"{rest.name}[{i - count}]", rest.kind, part, content_type)
            for i, part in enumerate(parts)
        )

    def _open_kwargs(self, kwargs: Raw, rest: Rest, content_type: str) -> dict[str, Any]:
        parts: dict[str, Raw] = _decoder(dict[str, Raw], content_type).decode(kwargs)
        return {
            name: self._part(name, self.by_name[name].kind if name in self.by_name else rest.kind, part, content_type)
            for name, part in parts.items()
        }

    def _part(self, name: str, kind: Any, part: Raw, content_type: str) -> Any:
        try:
            return _decoder(kind, content_type).decode(part)
        except Exception as error:
            reason, path = _located(error)
            raise InvalidArguments(f"task {self.owner}: {reason} - at `{name}{path}`") from error

    def _check_bound(self, count: int, named: dict[str, Any]) -> None:
        for i, parameter in enumerate(self.positional):
            if i < count and parameter.by_name and parameter.name in named:
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is given twice")
            if i >= count and parameter.required and not (parameter.by_name and parameter.name in named):
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is missing")
        for parameter in self.named:
            if parameter.required and parameter.name not in named:
                raise InvalidArguments(f"task {self.owner}: {parameter.name!r} is missing")
        if self.context is not None and self.context[1] in named:
            raise InvalidArguments(f"task {self.owner}: {self.context[1]!r} is filled in by the worker")
        if self.provided and not self.provided.isdisjoint(named):
            raise self.refused(named)

    def refused(self, named: dict[str, Any]) -> InvalidArguments:
        """The error for a call that gives what is not its own to give."""
        name = min(self.provided.intersection(named))
        return InvalidArguments(
            f"task {self.owner}: {name!r} is a dependency, which is filled in where the task runs"
        )

    def _readable(self, error: Exception) -> str:
        """The decoder's words with the parameter's name where they say `$[2]` or `$.size`."""
        reason, path = _located(error)
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


class Signature:
    """The typed call of one function.

    Args:
        function: the task's function.
        owner: its name, for errors.
        injected: a parameter annotated with this class is filled in by the worker and does not travel.
        is_provided: whether a parameter with its annotation is filled in by a provider, and does not travel either.

    Raises:
        InvalidOption: a parameter's or the return type cannot be decoded from a message. Annotations that
            name what is not defined yet are looked at again on first use.
    """

    __slots__ = ("_cache", "_function", "_injected", "_is_provided", "_owner")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        owner: str,
        injected: type,
        is_provided: _IsProvided = lambda _parameter, _kind: False,
    ) -> None:
        self._function = function
        self._owner = owner
        self._injected = injected
        self._is_provided = is_provided
        try:
            self._cache: _Compiled | None = _Compiled(function, owner, injected, is_provided)
        except NameError:
            self._cache = None

    def _compiled(self) -> _Compiled:
        if self._cache is None:
            try:
                self._cache = _Compiled(self._function, self._owner, self._injected, self._is_provided)
            except NameError as error:
                raise InvalidOption(
                    f"task {self._owner}: an annotation cannot be resolved ({error}); import the name at module "
                    "level, outside of `if TYPE_CHECKING`"
                ) from error
        return self._cache

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], content_type: str) -> tuple[Raw, Raw]:
        """The call in its wire form.

        Raises:
            InvalidArguments: the arguments do not fit the signature.
            EncodeError: an argument has no form on the wire.
        """
        compiled = self._cache or self._compiled()
        if not kwargs:
            whole = compiled.whole.get(content_type)
            if whole is not None:
                try:
                    data = (_msgpack_encoder if content_type == MSGPACK else _json_encoder).encode(args)
                    whole(data)
                except Exception:  # noqa: BLE001, S110 - what does not fit is said below
                    pass
                else:
                    return Raw(data), NO_KWARGS
        elif not compiled.provided.isdisjoint(kwargs):
            raise compiled.refused(kwargs)
        try:
            raw_args = Raw(encode_value(args, content_type))
            raw_kwargs = Raw(encode_value(kwargs, content_type)) if kwargs else NO_KWARGS
        except EncodeError as error:
            place = compiled.place_without_form(args, kwargs, content_type)
            raise EncodeError(f"task {self._owner}: {place}{error}") from error.__cause__
        compiled.decode(raw_args, raw_kwargs, content_type)
        return raw_args, raw_kwargs

    def decode(self, args: Raw, kwargs: Raw, content_type: str | None) -> Arguments:
        """The call with its arguments in the annotated types.

        Raises:
            InvalidArguments: they do not fit.
        """
        compiled = self._cache or self._compiled()
        # Decoders are kept by this: what follows a ";" in a sender's content type must not count.
        return compiled.decode(args, kwargs, MSGPACK if content_type == MSGPACK else JSON)

    @property
    def decoder(self) -> Callable[[Raw, Raw, str], Arguments]:
        """`decode` for many calls; the content type has to be one of the two, as it is."""
        return (self._cache or self._compiled()).decode

    def accepts(self, count: int, kwargs: Mapping[str, object]) -> bool:
        """Whether a call with so many positional arguments and these others lacks none."""
        compiled = self._cache or self._compiled()
        given = {parameter.name for parameter in compiled.positional[:count]}.union(kwargs)
        return all(
            parameter.name in given for parameter in (*compiled.positional, *compiled.named) if parameter.required
        )

    @property
    def is_resolved(self) -> bool:
        """Whether every annotation could be resolved when the function was defined."""
        return self._cache is not None

    @property
    def parameters(self) -> Parameters:
        """Those that travel: not what the worker or a provider fills in."""
        compiled = self._compiled()
        return Parameters(compiled.positional, compiled.named, compiled.rest_args, compiled.rest_kwargs)

    @property
    def provided(self) -> set[str]:
        """The parameters that providers fill in."""
        return self._compiled().provided

    @property
    def takes_context(self) -> bool:
        return self._compiled().context is not None

    def with_context(self, arguments: Arguments, context: object) -> Arguments:
        """`arguments` with `context` where the function wants it."""
        args, kwargs = arguments
        place = (self._cache or self._compiled()).context
        if place is None:
            return arguments
        index, name = place
        if 0 <= index <= len(args):
            return (*args[:index], context, *args[index:]), kwargs
        return args, {**kwargs, name: context}

    def return_type(self) -> ReturnType:
        """What the function returns.

        Raises:
            InvalidOption: the annotated type cannot be decoded.
        """
        kind = self._compiled().returns
        try:
            _check_type(kind, owner=self._owner, what="the return type", refused=self._injected)
        except InvalidOption as error:
            raise InvalidOption(f"{error}; or keep no results: result=False") from error
        return ReturnType(kind)


def _hints(function: Callable[..., Any], owner: str) -> dict[str, Any]:
    target: Any = inspect.unwrap(function)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except AttributeError as error:
        # Of a module that is still being imported: it may have the name later.
        raise NameError(str(error)) from error
    except (SyntaxError, TypeError) as error:
        raise InvalidOption(f"task {owner}: an annotation cannot be read: {error}") from error
    # A bare None annotation stays None for msgspec; NoReturn has no values to decode.
    return {name: (Any if kind is typing.NoReturn or kind is typing.Never else kind) for name, kind in hints.items()}


def _located(error: Exception) -> tuple[str, str]:
    """What is wrong, and where in the value; the place is empty when it is the value itself, or unknown."""
    if not isinstance(error, msgspec.MsgspecError):
        return f"{type(error).__name__}: {error}", ""
    # The last one: what is before it may quote the value.
    reason, marker, path = str(error).rpartition(" - at `$")
    return (reason, path.removesuffix("`")) if marker else (path, "")


def _is_injected(kind: Any, injected: type) -> bool:
    if isinstance(kind, type):
        return issubclass(kind, injected)
    return injected in typing.get_args(kind) and typing.get_origin(kind) is not None and _is_union(kind)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, type(int | str))


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


def _check_type(kind: Any, *, owner: str, what: str, refused: type) -> None:
    from msgspec import inspect as types

    def unsupported(info: Any, seen: set[int]) -> str | None:
        if id(info) in seen:
            return None
        seen.add(id(info))
        if isinstance(info, types.StructType) and issubclass(info.cls, refused):
            return info.cls.__qualname__
        if isinstance(info, types.CustomType):
            custom = cast("type[object]", info.cls)
            is_known = custom is object or issubclass(custom, PurePath) or hasattr(custom, "model_validate")
            return None if is_known else custom.__qualname__
        for name in ("type", "item_type", "key_type", "value_type", "item_types", "types", "fields"):
            children: Any = getattr(info, name, None)
            group: list[Any] = list(children) if hasattr(children, "__iter__") else [children]
            for child in group:
                if isinstance(child, types.Type | types.Field) and (found := unsupported(child, seen)):
                    return found
        return None

    if kind is Any or kind in (int, str, float, bool, None, dict, list, bytes):
        return
    try:
        found = unsupported(types.type_info(kind), set())
        msgspec.json.Decoder(kind, dec_hook=_decode_hook)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidOption(f"task {owner}: {what} cannot be decoded from a message: {error}") from error
    if found:
        raise InvalidOption(
            f"task {owner}: {what} is a {found}, which cannot be decoded from a message: use a dataclass, a "
            "msgspec Struct, a TypedDict, a pydantic model or plain types"
        )
