"""Profile of a RabbitMQ node: time of its scheduler threads by state, and work of its processes by kind.

The node measures itself (Erlang's microstate accounting and reductions) from a given instant. `rabbitmqctl` starts
well before that instant, because starting it takes a second of processor time.
"""

from typing import Final

from tests.servers import RabbitMQ

# One string: rabbitmqctl evaluates it in the node.
_PROGRAM: Final = """
timer:sleep(max(0, {start} - erlang:system_time(millisecond))),
Kind = fun(P) ->
    case erlang:process_info(P, [registered_name, dictionary, initial_call]) of
        undefined -> <<"ended">>;
        [{{registered_name, Name}}, _, _] when is_atom(Name), Name =/= [] -> atom_to_binary(Name);
        [_, {{dictionary, D}}, {{initial_call, {{M, F, _}}}}] ->
            case {{proplists:get_value(process_name, D), proplists:get_value('$initial_call', D)}} of
                {{{{Module, _}}, _}} -> atom_to_binary(Module);
                {{_, {{Module, _, _}}}} -> atom_to_binary(Module);
                _ -> iolist_to_binary(io_lib:format("~p:~p", [M, F]))
            end
    end
end,
Work = fun() ->
    Others = erlang:processes() -- [self()],
    maps:from_list([{{P, R}} || P <- Others, {{_, R}} <- [erlang:process_info(P, reductions)]])
end,
erlang:system_flag(microstate_accounting, reset),
erlang:system_flag(microstate_accounting, true),
Before = Work(),
timer:sleep({window}),
After = Work(),
Threads = [C || #{{type := scheduler, counters := C}} <- erlang:statistics(microstate_accounting)],
erlang:system_flag(microstate_accounting, false),
Times = lists:foldl(
    fun(C, Sum) -> maps:fold(fun(K, V, S) -> maps:update_with(K, fun(W) -> W + V end, V, S) end, Sum, C) end,
    #{{}}, Threads),
Whole = max(1, lists:sum(maps:values(Times))),
Done = maps:fold(
    fun(P, R, Sum) ->
        case R - maps:get(P, Before, 0) of
            0 -> Sum;
            More -> maps:update_with(Kind(P), fun({{N, W}}) -> {{N + 1, W + More}} end, {{1, More}}, Sum)
        end
    end, #{{}}, After),
All = max(1, lists:sum([W || {{_, W}} <- maps:values(Done)])),
ByWork = lists:sublist(
    lists:reverse(lists:keysort(3, [{{K, N, W}} || {{K, {{N, W}}}} <- maps:to_list(Done)])), {top}),
ByTime = lists:reverse(lists:keysort(2, maps:to_list(Times))),
io:put_chars(
    [io_lib:format("threads ~5.1f % ~s~n", [100 * V / Whole, K]) || {{K, V}} <- ByTime] ++
    [io_lib:format("work    ~5.1f % ~s (~b)~n", [100 * W / All, K, N]) || {{K, N, W}} <- ByWork]).
"""


def node_profile(broker: RabbitMQ, *, start_ms: int, window_ms: int, top: int = 12) -> str:
    """Profile the node for `window_ms` from `start_ms` (since the epoch), and return the profile as text."""
    printed = broker.ctl("eval", _PROGRAM.format(start=start_ms, window=window_ms, top=top))
    return printed.strip().removesuffix("ok").rstrip()
