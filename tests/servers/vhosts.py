"""Virtual hosts that tests use one after the other, emptied by one expression at the node."""

from collections.abc import Mapping
from typing import Final

from taskmq_rabbitmq.model.entities import (
    Binding,
    Exchange,
    Queue,
    declared_arguments,
    events,
    ladder,
    shared_entities,
)

# The objects of every app: no test may miss one of them, or find it changed or filled.
_ENTITIES: Final = (*shared_entities(), *events(), *ladder())
_KEPT: Final = frozenset(each.name for each in _ENTITIES if not isinstance(each, Binding))

# Connections end first, because they declare again what is deleted. A message that is on its way to the next level of
# the ladder is counted by its old level until the next one has confirmed it, so levels are asked in this order.
_CLEAR: Final = """
Host = {host}, Kept = sets:from_list({kept}), User = <<"test">>,
Connections = fun() -> rabbit_connection_tracking:list(Host) end,
[rabbit_networking:close_connection(element(6, Each), "the test has ended") || Each <- Connections()],
(fun Wait(0) -> ok; Wait(Left) ->
    case Connections() of [] -> ok; _ -> timer:sleep(10), Wait(Left - 1) end end)(1000),
Name = fun(Resource) -> element(4, Resource) end,
Plain = fun(Table) -> lists:sort([{{Key, Value}} || {{Key, _, Value}} <- Table]) end,
Queues = lists:keysort(1, [{{Name(amqqueue:get_name(Q)), Q}} || Q <- rabbit_amqqueue:list(Host)]),
Exchanges = [{{Name(element(2, E)), E}} || E <- rabbit_exchange:list(Host)],
[rabbit_amqqueue:delete(Q, false, false, User) || {{N, Q}} <- Queues, not sets:is_element(N, Kept)],
[rabbit_exchange:delete(element(2, E), false, User) || {{N, E}} <- Exchanges, not sets:is_element(N, Kept),
    N =/= <<>>, binary:longest_common_prefix([N, <<"amq.">>]) < 4],
Letters = fun(Q) ->
    case ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:query_stat_dlx/1) of
        {{ok, {{_, {{Count, _}}}}, _}} -> Count; _ -> unknown end end,
Is_empty = fun(Q) -> {{rabbit_amqqueue:stat(Q), Letters(Q)}} =:= {{{{ok, 0, 0}}, 0}} end,
Is_used = [N || {{N, Q}} <- Queues, sets:is_element(N, Kept), not Is_empty(Q)] =/= [] orelse Connections() =/= []
    orelse rabbit_policy:list(Host) =/= [] orelse rabbit_policy:list_op(Host) =/= []
    orelse rabbit_vhost_limit:list(Host) =/= []
    orelse length(rabbit_auth_backend_internal:list_vhost_permissions(Host)) =/= 1,
case Is_used of true -> used; false -> erlang:phash2({{
    [{{N, Plain(amqqueue:get_arguments(Q))}} || {{N, Q}} <- Queues, sets:is_element(N, Kept)],
    lists:sort([{{N, Plain(element(7, E))}} || {{N, E}} <- Exchanges, sets:is_element(N, Kept)]),
    lists:sort([{{Name(element(2, B)), Name(element(4, B)), element(3, B)}} ||
        B <- rabbit_binding:list(Host), Name(element(2, B)) =/= <<>>])}}) end.
"""


def expression_to_clear(host: str) -> str:
    """Return Erlang that removes everything from a vhost but the objects of every app.

    Its value is a hash of them; `used` if they hold messages, or the vhost has policies, limits or more permissions.
    """
    return " ".join(_CLEAR.format(host=_term(host), kept=_term(sorted(_KEPT))).split())


def expression_of_clear_hash() -> str:
    """Return Erlang for the hash that a cleared vhost must have."""
    queues = sorted((each.name, declared_arguments(each)) for each in _ENTITIES if isinstance(each, Queue))
    exchanges = sorted((each.name, each.arguments) for each in _ENTITIES if isinstance(each, Exchange))
    bindings = [(each.source, each.target, each.key) for each in _ENTITIES if isinstance(each, Binding)]
    ordered = f"{{lists:sort({_term(queues)}), lists:sort({_term(exchanges)}), lists:sort({_term(bindings)})}}"
    return f"erlang:phash2({ordered})."


def _term(value: object) -> str:
    match value:
        case str():
            return f'<<"{value}">>'
        case Mapping():
            return _term(sorted(value.items()))
        case tuple():
            return f"{{{', '.join(map(_term, value))}}}"
        case list():
            return f"[{', '.join(map(_term, value))}]"
        case _:
            return str(value)
