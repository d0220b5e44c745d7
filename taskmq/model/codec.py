"""Conversion of a Python call to bytes and back, by the task's own signature. Pure.

Arguments are encoded as they are and decoded straight into the annotated types: msgspec's (dataclasses, Structs,
datetimes, UUIDs, enums, tuples, unions, ...), paths as strings, pydantic models by their own methods. `encode`
decodes what it has written and compares. So a call that the worker would reject, or would decode to other values, is
refused before it is published.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.envelope import JSON, MSGPACK, NO_KWARGS
from taskmq.model.values.annotations import check_type
from taskmq.model.values.canonical_form import canonical_order
from taskmq.model.values.difference import difference
from taskmq.model.values.parameters import Arguments, CompiledSignature, IsProvided, Parameters
from taskmq.model.values.return_type import ReturnType
from taskmq.model.values.wire_form import ENCODERS, decode_value, encode_value


class Signature:
    """The typed call of one function.

    Args:
        function: the task's function.
        owner: its name, for errors.
        injected: a parameter annotated with this class is filled in by the worker and does not travel.
        is_provided: whether a provider fills in a parameter with this annotation; it does not travel either.

    Raises:
        InvalidOption: a parameter's type or the return type cannot be decoded from a message. Annotations with
            undefined names are resolved on first use.
    """

    __slots__ = ("_cache", "_function", "_injected", "_is_provided", "_owner")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        owner: str,
        injected: type,
        is_provided: IsProvided = lambda _parameter, _kind: False,
    ) -> None:
        self._function = function
        self._owner = owner
        self._injected = injected
        self._is_provided = is_provided
        try:
            self._cache: CompiledSignature | None = CompiledSignature(function, owner, injected, is_provided)
        except NameError:
            self._cache = None

    def _compile(self) -> CompiledSignature:
        if self._cache is None:
            try:
                self._cache = CompiledSignature(self._function, self._owner, self._injected, self._is_provided)
            except NameError as error:
                raise InvalidOption(
                    f"task {self._owner}: an annotation cannot be resolved ({error}); import the name at module "
                    "level, outside of `if TYPE_CHECKING`"
                ) from error
        return self._cache

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], content_type: str) -> tuple[Raw, Raw]:
        """Encode a call for the wire.

        Raises:
            InvalidArguments: the arguments do not fit the signature.
            EncodeError: an argument cannot be encoded.
        """
        compiled = self._cache or self._compile()
        if not kwargs:
            whole = compiled.whole.get(content_type)
            if whole is not None:
                try:
                    data = ENCODERS[content_type](args)
                    if whole(data) == args:
                        return Raw(data), NO_KWARGS
                except Exception:  # noqa: BLE001, S110 - the code below reports what does not fit
                    pass
        elif not compiled.provided.isdisjoint(kwargs):
            raise compiled.refusal_of(kwargs)
        raw_args, raw_kwargs = compiled.encode(args, kwargs, content_type)
        try:
            arrived = compiled.decode(raw_args, raw_kwargs, content_type)
        except InvalidArguments:
            # The decoder reports an argument that cannot be encoded only by its converted form, so check the
            # original.
            compiled.check(args, kwargs, content_type, is_plain=True)
            raise
        if difference((args, kwargs), arrived) is not None:
            compiled.check(args, kwargs, content_type)
        return raw_args, raw_kwargs

    def encode_part(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], content_type: str, *, before: int | None
    ) -> tuple[Raw, Raw]:
        """Encode a part of a call.

        Args:
            before: number of positional arguments before these; None: unknown.

        Raises:
            EncodeError: an argument cannot be encoded, or does not fit its parameter.
        """
        compiled = self._cache or self._compile()
        raws = compiled.encode(args, kwargs, content_type)
        compiled.check(args, kwargs, content_type, before=before or 0, is_plain=before is None)
        return raws

    def canonical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], raws: tuple[Raw, Raw], *, keeps_keys: bool = False
    ) -> tuple[Raw, Raw]:
        """Encode a call as JSON in which unordered values are sorted, so that every process produces the same bytes.

        Args:
            raws: the call as `encode` returned it.
            keeps_keys: keep the order of dictionary keys, which the calling code defines.
        """
        compiled = self._cache or self._compile()
        plain = [decode_value(bytes(raw), JSON) for raw in raws]
        indexes = {name: index for index, name in enumerate(compiled.by_name)}
        named = canonical_order(kwargs, plain[1], keeps_keys=keeps_keys)
        ordered = dict(sorted(named.items(), key=lambda item: indexes.get(item[0], len(indexes))))
        raw_args = Raw(encode_value(canonical_order(args, plain[0], keeps_keys=keeps_keys), JSON))
        return raw_args, Raw(encode_value(ordered, JSON)) if kwargs else raws[1]

    def decode(self, args: Raw, kwargs: Raw, content_type: str | None) -> Arguments:
        """Decode a call into the annotated types.

        Raises:
            InvalidArguments: the arguments do not fit.
        """
        compiled = self._cache or self._compile()
        # Decoders are cached by content type, so parameters after ";" from a sender must not create new ones.
        return compiled.decode(args, kwargs, MSGPACK if content_type == MSGPACK else JSON)

    @property
    def decoder(self) -> Callable[[Raw, Raw, str], Arguments]:
        """`decode` for hot loops; the content type must be exactly `JSON` or `MSGPACK`."""
        return (self._cache or self._compile()).decode

    def accepts(self, count: int, kwargs: Mapping[str, object]) -> bool:
        """Return whether a call with this many positional arguments and these keyword arguments lacks none."""
        compiled = self._cache or self._compile()
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
        """Parameters that callers pass, without those that the worker or a provider fills in."""
        compiled = self._compile()
        return Parameters(compiled.positional, compiled.named, compiled.rest_args, compiled.rest_kwargs)

    @property
    def provided(self) -> set[str]:
        """Names of the parameters that providers fill in."""
        return self._compile().provided

    @property
    def takes_context(self) -> bool:
        return self._compile().context is not None

    def with_context(self, arguments: Arguments, context: object) -> Arguments:
        """Return `arguments` with `context` inserted, if the function takes one."""
        args, kwargs = arguments
        found = (self._cache or self._compile()).context
        if found is None:
            return arguments
        index, name = found
        if 0 <= index <= len(args):
            return (*args[:index], context, *args[index:]), kwargs
        return args, {**kwargs, name: context}

    def return_type(self) -> ReturnType:
        """Type of the function's return value.

        Raises:
            InvalidOption: the annotated type cannot be decoded.
        """
        kind = self._compile().returns
        try:
            check_type(kind, owner=self._owner, what="the return type", refused=self._injected)
        except InvalidOption as error:
            raise InvalidOption(f"{error}; or keep no results: result=False") from error
        return ReturnType(kind)
