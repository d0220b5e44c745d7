"""Choice and order of provider calls, and refusals at the definition of a task."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, Depends, InvalidArguments, InvalidOption, TaskMQ, WorkQueue
from taskmq.injection.plan import Dependency, plan_dependencies


def settings() -> dict[str, str]:
    return {}


def engine(given: dict[str, str] = Depends(settings)) -> str:
    return "engine"


def session(on: str = Depends(engine), given: dict[str, str] = Depends(settings)) -> Iterator[str]:
    yield "session"


async def audit(ctx: Context, to: Annotated[str, Depends(session)]) -> AsyncIterator[str]:
    yield "audit"


def app() -> TaskMQ:
    return TaskMQ("memory://dependencies")


def labels(function: Callable[..., Any]) -> list[str]:
    plan = plan_dependencies(function, owner="t")
    return [] if plan is None else [node.label for node in plan.nodes]


def test_each_provider_is_called_once_and_after_its_own_dependencies() -> None:
    def sell(a: int, log: str = Depends(audit), db: str = Depends(session)) -> None: ...

    assert labels(sell) == ["settings", "engine", "session", "audit"]


def test_a_function_without_dependencies_has_no_plan_and_is_called_directly() -> None:
    @app().task(name="plain")
    def plain(ctx: Context, a: int, b: int = 2) -> None: ...

    assert plan_dependencies(plain.function, owner="t") is None
    assert plain.call is plain.function


@given(st.lists(st.sets(st.integers(0, 14), max_size=4), min_size=1, max_size=15))
def test_every_dependency_is_ready_before_its_dependent_in_any_graph(wanted: list[set[int]]) -> None:
    providers: list[Callable[..., Any]] = []
    for number, others in enumerate(wanted):
        # Only on earlier ones: no cycle.
        takes = [providers[other] for other in sorted(others) if other < number]
        providers.append(_provider(number, takes))
    task = _provider(99, providers)

    plan = plan_dependencies(task, owner="t")

    assert plan is not None
    assert len(plan.nodes) == len(providers)
    values: dict[int, Any] = {}
    for index, node in enumerate(plan.nodes):
        values[index] = node.provider(**{name: values[taken] for name, taken in node.takes})
    args, kwargs = plan.insert((), {}, values)
    assert task(*args, **kwargs) == (99, *range(len(providers)))


def _provider(number: int, takes: list[Callable[..., Any]]) -> Callable[..., Any]:
    def provide(**given: Any) -> Any:
        return (number, *(value[0] for value in given.values()))

    parameters = [
        inspect.Parameter(f"p{n}", inspect.Parameter.KEYWORD_ONLY, default=Dependency(take, "task"))
        for n, take in enumerate(takes)
    ]
    provide.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    provide.__annotations__ = {}
    return provide


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_travelling_arguments_keep_their_positions_around_dependencies(
    before: int,
    between: int,
    behind: int,
    has_context: bool,
) -> None:
    def provide() -> str:
        return "given"

    names = [
        *(f"a{n}" for n in range(before)),
        "first",
        *(f"b{n}" for n in range(between)),
        *(["ctx"] if has_context else []),
        *(f"c{n}" for n in range(behind)),
        "last",
    ]

    def function(*args: Any) -> tuple[Any, ...]:
        return args

    kinds = {"first": Annotated[str, Depends(provide)], "last": Annotated[str, Depends(provide)], "ctx": Context}
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kinds.get(name, int))
            for name in names
        ]
    )
    function.__annotations__ = {name: kinds.get(name, int) for name in names}
    task = app().task(name="t")(function)
    travels = [name for name in names if name not in kinds]

    called = task(*range(len(travels)))

    assert len(called) == len(names)
    found = dict(zip(names, called, strict=True))
    assert [found[name] for name in travels] == list(range(len(travels)))
    assert (found["first"], found["last"]) == ("given", "given")
    assert not has_context or isinstance(found["ctx"], Context)
    raw, _ = task.signature.encode(tuple(range(len(travels))), {}, "application/json")
    assert bytes(raw).decode() == str(list(range(len(travels)))).replace(" ", "")


def test_a_provider_may_be_a_class_a_partial_or_a_callable_object() -> None:
    class Clock:
        def __init__(self, given: dict[str, str] = Depends(settings)) -> None:
            self.given = given

    class Maker:
        def __call__(self, clock: Clock = Depends(Clock)) -> str:
            return type(clock).__name__

    def plus(a: int, b: int = 1) -> int:
        return a + b

    @app().task(name="t")
    def look(
        *,
        clock: Clock = Depends(Clock),
        made: str = Depends(Maker()),
        number: int = Depends(functools.partial(plus, 4)),
        words: list[str] = Depends(list[str]),
        empty: dict[str, str] = Depends(dict[str, str]),
    ) -> list[Any]:
        return [clock.given, made, number, words, empty]

    assert look() == [{}, "Clock", 5, [], {}]


def test_dependencies_are_not_sent_and_callers_may_not_pass_them() -> None:
    @app().task(name="sell")
    def sell(item: str, count: int = 1, *, db: str = Depends(session)) -> None: ...

    raw, named = sell.signature.encode(("hat",), {"count": 2}, "application/json")
    assert (bytes(raw), bytes(named)) == (b'["hat"]', b'{"count":2}')
    for kwargs in ({"db": "mine"}, {"db": object()}):
        with pytest.raises(InvalidArguments, match="'db' is a dependency, which is filled in where the task runs"):
            sell.signature.encode(("hat",), kwargs, "application/json")
    with pytest.raises(InvalidArguments, match="too many arguments, it takes 2"):
        sell.signature.encode(("hat", 1, "mine"), {}, "application/json")


def test_a_message_that_contains_a_dependency_is_refused() -> None:
    @app().task(name="sell")
    def sell(db: str = Depends(session), **rest: int) -> None: ...

    with pytest.raises(InvalidArguments, match="'db' is a dependency"):
        sell.signature.decode(b"[]", b'{"db":1}', "application/json")  # type: ignore[arg-type]


def test_a_dependency_may_have_a_type_that_cannot_be_encoded() -> None:
    class Connection: ...

    @app().task(name="sell")
    def sell(db: Connection = Depends(Connection)) -> bool:
        return isinstance(db, Connection)

    assert sell()


def test_an_order_key_uses_only_travelling_arguments() -> None:
    ordered = TaskMQ("memory://dependencies", queues=[WorkQueue("default", ordered=2)])

    @ordered.task(name="sell", order_key="account")
    def sell(db: Annotated[str, Depends(session)], account: int) -> None: ...

    assert sell.order_key is not None
    assert sell.order_key.of((7,), {}) == "7"


def needs_words(words: str) -> str:
    return words


def takes_any(*words: str, **more: str) -> str:
    return "".join(words)


def by_position(a: str = Depends(settings), /) -> str:  # type: ignore[assignment]
    return a


def of_a_task(ctx: Context) -> str:
    return ""


def loop_a(b: "Annotated[str, Depends(loop_b)]") -> str:
    return b


def loop_b(a: "Annotated[str, Depends(loop_a)]") -> str:
    return a


@pytest.mark.parametrize(
    ("provider", "scope", "message"),
    [
        (
            needs_words,
            "task",
            "task t -> given -> needs_words: parameter 'words' has no value: make it a dependency or a Context",
        ),
        (
            loop_a,
            "task",
            "task t -> given -> loop_a -> b -> loop_b -> a -> loop_a: they depend on each other in a cycle",
        ),
        (
            by_position,
            "task",
            "task t -> given -> by_position: 'a' must accept a keyword argument",
        ),
        (of_a_task, "worker", "of_a_task: a worker dependency outlives every task, so it has no Context"),
        (engine, "worker", "engine -> given: a worker dependency cannot depend on a task dependency"),
    ],
)
def test_an_uncallable_provider_is_refused_at_definition_with_its_chain(
    provider: Callable[..., str], scope: Any, message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):

        @app().task(name="t")
        def task(given: str = Depends(provider, scope=scope)) -> None: ...


def test_a_provider_may_have_defaults_and_variadic_parameters() -> None:
    @app().task(name="t")
    def task(given: str = Depends(takes_any)) -> str:
        return given

    assert task() == ""


def test_a_default_before_a_travelling_argument_is_refused() -> None:
    with pytest.raises(InvalidOption, match="task t -> db: 'count' follows it and is positional"):

        @app().task(name="t")
        def task(item: str, db: str = Depends(session), count: int = 1) -> None: ...


def test_a_positional_only_dependency_is_refused() -> None:
    with pytest.raises(InvalidOption, match="task t -> db: a dependency needs a parameter passed by keyword"):

        @app().task(name="t")
        def task(db: str = Depends(session), /) -> None: ...


def test_a_task_in_a_process_cannot_use_an_async_provider() -> None:
    with pytest.raises(
        InvalidOption, match="its dependency audit is asynchronous, and a task with executor='process'"
    ):

        @app().task(name="t", executor="process")
        def task(log: str = Depends(audit)) -> None: ...


def test_depends_needs_a_callable_and_a_valid_scope() -> None:
    with pytest.raises(InvalidOption, match="is not callable"):
        Depends(7)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="'task' or 'worker'"):
        Depends(settings, scope="app")  # type: ignore[call-overload]


# Names defined later


def test_postponed_annotations_are_resolved_on_first_use() -> None:
    @app().task(name="t")
    def task(given: "Annotated[str, Depends(later)]") -> str:  # noqa: F821
        return given

    with pytest.raises(InvalidOption, match="an annotation cannot be resolved"):
        task()  # type: ignore[call-arg]

    globals()["later"] = lambda: "now"
    try:
        assert task() == "now"  # type: ignore[call-arg]
    finally:
        del globals()["later"]


def test_a_provider_may_use_names_that_are_defined_later() -> None:
    def provider(given: "Annotated[str, Depends(even_later)]") -> str:  # noqa: F821
        return given

    @app().task(name="t")
    def task(given: str = Depends(provider)) -> str:
        return given

    with pytest.raises(InvalidOption, match="an annotation of a dependency cannot be resolved"):
        task()

    globals()["even_later"] = lambda: "now"
    try:
        assert task() == "now"
    finally:
        del globals()["even_later"]
