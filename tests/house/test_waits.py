"""No test waits for a time instead of an event, and none limits the duration of anything."""

import ast
import functools
from collections.abc import Iterable, Iterator
from typing import Final

from tests.house.tree import ROOT, Module, modules_of_tests, nodes

_TESTS: Final = ROOT / "tests"
# Campaigns measure; they are not part of the gate.
_CAMPAIGNS: Final = _TESTS / "faults"
_CLOCKS: Final = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}
_SLEEPS: Final = {"asyncio.sleep", "time.sleep"}
_POLLING: Final = "tests/servers/waiting.py"
# A loop with virtual time: sleeping on it takes none.
_VIRTUAL: Final = "tests.virtual_time"
# The mark of a coroutine that waits for something outside its loop.
_REAL: Final = "real_time"
# Reason -> file -> functions.
_SLEEPING: Final[dict[str, dict[str, set[str]]]] = {
    "The time of a server, a lease or a heartbeat is what is tested, and nothing is to happen meanwhile.": {
        "integration/test_local_processes.py": {
            "test_a_stopped_process_keeps_its_messages_and_can_settle_them_later"
        },
        "integration/test_rabbitmq_consumer_timeout.py": {
            "test_a_consumer_with_a_long_timeout_is_not_cancelled",
            "test_a_policy_cannot_time_out_that_consumer_either",
        },
        "integration/test_rabbitmq_handover.py": {
            "test_a_long_task_runs_once_and_no_other_job_is_disturbed",
            "test_a_state_down_for_longer_than_the_lease_changes_nothing_for_one_worker",
            "test_the_job_of_a_killed_worker_runs_elsewhere_after_the_lease",
            "test_a_job_that_waits_for_a_slot_is_requeued_in_time",
            "test_with_a_state_down_a_keeper_is_neither_run_elsewhere_nor_lost",
            "test_a_long_task_without_a_state_runs_twice",
        },
        "integration/test_rabbitmq_migration.py": {"test_unacked_messages_of_a_vanished_worker_are_waited_for"},
        "integration/test_rabbitmq_outages.py": {
            "test_a_quiet_connection_stays",
            "test_consumers_return_within_seconds_after_their_node",
        },
        "integration/test_rabbitmq_queue_kinds.py": {"_send_letters"},
        "integration/test_rabbitmq_watchdog.py": {"stays_ready"},
        "unit/client/test_bulk.py": {"test_a_slow_producer_of_calls_does_not_wait_for_a_full_chunk"},
        "unit/executors/test_process_limits.py": {
            "test_runs_that_end_exactly_at_their_soft_timeout_leave_no_alarm_behind"
        },
        "unit/local/database/test_database.py": {"test_closing_while_the_file_is_locked_ends_all_waiting_calls"},
        "unit/rabbitmq/connect/test_credentials.py": {"test_nothing_is_fetched_after_closing"},
    },
    "The loop or a thread is held up on purpose, and turns again afterwards.": {
        "integration/test_rabbitmq_held_up.py": {
            "test_a_loop_blocked_for_nearly_two_heartbeats_keeps_its_connections",
            "test_a_send_whose_deadline_passes_while_the_loop_is_blocked_is_not_unknown",
            "test_an_answer_received_while_the_loop_was_blocked_counts",
        },
        "unit/executors/test_interrupt.py": {"test_a_real_cancellation_in_the_same_iteration_takes_precedence"},
        "unit/rabbitmq/connect/test_held_up.py": {
            "_hold_up",
            "test_sends_that_expire_in_the_next_stall_get_their_own_grace",
        },
        "unit/worker/host/test_event_loop.py": {
            "_hold_up",
            "test_a_c_call_that_holds_the_interpreter_is_reported_afterwards",
            "_block_until_its_end_is_reported",
            "test_a_running_loop_is_not_reported",
            "test_without_patience_nothing_is_watched",
        },
    },
    "A load has its pace, and so have those who kill, cut and renew; how long a round takes decides nothing.": {
        "dashboard/load.py": {"_cost", "_replay", "_tell"},
        "docs/console_pictures.py": {"_page"},
        "docs/test_disaster_recovery_page.py": {"_submit"},
        "e2e/test_delayed_kills.py": {"test_every_delayed_job_runs_and_none_early_although_its_relays_are_killed"},
        "e2e/test_delays.py": {"test_no_delayed_task_starts_before_its_time"},
        "e2e/test_kills.py": {"test_every_task_runs_although_a_worker_is_killed_every_second"},
        "e2e/test_order.py": {"test_jobs_of_one_key_run_in_order_whatever_happens_to_their_workers"},
        "integration/test_cut_connections.py": {
            "test_cuts_under_load_charge_no_job_and_repeat_only_the_jobs_in_hand"
        },
        "integration/test_job_store_faults.py": {"test_a_server_that_restarts_under_load_keeps_its_confirmed_writes"},
        "integration/test_local_processes.py": {
            "test_thousands_of_waiters_learn_of_results_that_another_process_stores",
        },
        "integration/test_rabbitmq_access.py": {"publish_both"},
        "integration/test_rabbitmq_migration.py": {"run"},
        "integration/test_rabbitmq_oauth2.py": {"_again_and_again", "_work", "follow"},
        "integration/test_rabbitmq_recovery.py": {
            "cut_again_and_again",
            "test_a_killed_and_restarted_node_has_all_confirmed_messages",
            "test_no_confirmed_message_is_lost_and_consumers_return",
            "test_order_is_kept_over_a_cut",
        },
        "integration/test_rabbitmq_watchdog.py": {"test_a_busy_consumer_is_left_alone"},
        "integration/test_redis_cluster.py": {"test_losses_with_a_failed_node_are_counted"},
        "integration/test_redis_sentinel.py": {"test_losses_of_a_failover_are_counted_and_writing_continues"},
        "unit/client/test_bulk.py": {"test_calls_of_a_slow_producer_are_confirmed_in_the_meantime"},
        "unit/worker/border_kit.py": {"_keep_moving"},
        "unit/worker/test_reporter.py": {"test_a_supervisor_that_does_not_read_delays_nothing_and_misses_no_run"},
    },
    "Work that takes a moment, so that others could come in between, or that has no end of its own.": {
        "features/shop.py": {"_define_limited", "_define_plain", "_define_reporting"},
        "conformance/test_the_suite_itself.py": {"connect", "consume"},
        "unit/executors/forking_tasks.py": {"_stays"},
        "unit/executors/test_interrupt.py": {
            "test_a_thread_is_interrupted_between_two_instructions",
            "test_the_interrupt_waits_until_the_thread_leaves_a_lock_of_the_standard_library",
        },
        "unit/injection/test_resolve.py": {
            "test_a_failure_is_not_cached_and_waiting_runs_try_again",
            "test_a_timeout_or_a_cancellation_closes_open_dependencies",
        },
        "unit/run/test_locks.py": {
            "test_one_holder_at_a_time_has_a_lock_and_tokens_grow",
            "test_threads_and_coroutines_share_a_lock",
        },
        "unit/testing/test_harness.py": {
            "test_a_rejection_and_a_failure_outside_of_the_task_are_reported_too",
            "test_an_endless_loop_of_jobs_fails_the_test_and_not_the_run",
        },
        "unit/worker/run/test_journal_service.py": {
            "test_a_caller_that_gives_up_waiting_for_the_begin_leaves_it_to_the_others"
        },
        "unit/worker/run/test_task_pool.py": {"test_a_leftover_timer_of_an_item_cancels_no_other"},
        "unit/worker/run/test_thread_runs.py": {
            "test_a_draining_worker_waits_for_its_threads_and_settles_their_runs",
            "test_no_more_threads_run_than_there_are_slots",
        },
    },
    "Parts of the servers of the tests, which import nothing of the tests, and of a simulation in virtual time.": {
        "servers/keeper.py": {"_clean_up", "_signal_tree", "_wait"},
        "servers/proxy.py": {"_deliver"},
        "unit/worker/impatient.py": {"_job", "sleep_until", "until_empty"},
    },
}


def test_real_sleeps_are_listed_with_their_reason() -> None:
    """Use `eventually` and `until` to wait; a long enough sleep is too short some day."""
    found = {
        f"{module.path.relative_to(_TESTS)}: {where}"
        for module in modules_of_tests()
        if _CAMPAIGNS not in module.path.parents and module.where != _POLLING
        for where in _sleeping(module)
    }

    listed = {f"{file}: {name}" for files in _SLEEPING.values() for file, names in files.items() for name in names}
    assert found == listed


def _sleeping(module: Module) -> Iterator[str]:
    """Return the outermost definitions with a sleep of more than one loop iteration."""
    if not any(_called_name(call) in _SLEEPS for call in nodes(module.tree, ast.Call)):
        return
    is_virtual = _VIRTUAL in _reachable_modules(module.name) or _is_in_virtual_time(module)
    marks = _marks_all(module)
    for node in module.tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            # Time passes on a separate loop, and in a marked test.
            nodes_of_part = [*ast.walk(part)]
            is_marked = _is_marked(part) or (
                marks and isinstance(part, ast.AsyncFunctionDef) and "test_" in part.name
            )
            runs_a_loop = any(_called_name(each) == "asyncio.run" for each in nodes_of_part)
            is_real = not is_virtual or is_marked or runs_a_loop
            if any(_sleeps(each, is_real) for each in nodes_of_part):
                yield part.name if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) else node.name


def _marks_all(module: Module) -> bool:
    """Whether a mark of the module makes all its coroutines wait in real time."""
    return any(isinstance(node, ast.Assign) and _has_the_mark(node) for node in module.tree.body)


def _has_the_mark(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == _REAL for each in ast.walk(node))


@functools.cache
def _is_in_virtual_time(module: Module) -> bool:
    """Whether a test of this module is an unmarked coroutine that only pytest runs."""
    if _marks_all(module):
        return False
    return any(
        isinstance(node, ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and all(ast.unparse(each).startswith(("pytest.mark.", "given(", "settings(")) for each in node.decorator_list)
        and not _is_marked(node)
        for node in module.tree.body
    )


def _is_marked(node: ast.AST) -> bool:
    return any(_has_the_mark(each) for each in getattr(node, "decorator_list", ()))


def _sleeps(node: ast.AST, is_real: bool) -> bool:
    return (
        isinstance(node, ast.Call)
        and (name := _called_name(node)) in _SLEEPS
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
        and (is_real or name == "time.sleep")
    )


def _called_name(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner))):
            return f"{owner}.{name}"
        case _:
            return None


@functools.cache
def _imports() -> dict[str, set[str]]:
    """Return the imported test modules of each module of the tests."""
    names = {module.name for module in modules_of_tests()}
    return {
        module.name: {
            found
            for node in nodes(module.tree, ast.ImportFrom)
            if node.module
            for found in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            if found in names
        }
        for module in modules_of_tests()
    }


def _reachable_modules(start: str) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        for target in _imports()[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def test_no_test_requires_a_speed() -> None:
    """A busy machine is slow; tests show an order by the first event, not by times."""
    found = [
        f"{module.where}:{line}"
        for module in modules_of_tests()
        if _CAMPAIGNS not in module.path.parents
        and any(_reads_a_clock(call) for call in nodes(module.tree, ast.Call))
        and _VIRTUAL not in _imports()[module.name]
        and not _is_in_virtual_time(module)
        for function in module.tree.body
        for line in _bounds(function)
    ]

    assert found == []


def _bounds(definition: ast.stmt) -> Iterator[int]:
    nodes = [*ast.walk(definition)]
    taken = _duration_names(nodes)
    yield from (node.lineno for node in nodes if isinstance(node, ast.Assert) and _bounds_a_time(node.test, taken))


def _bounds_a_time(test: ast.expr, taken: set[str]) -> bool:
    """Whether a difference of two readings of a clock is compared with a bound."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                lesser = left if isinstance(operator, ast.Lt | ast.LtE) else right
                if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and _is_duration(lesser, taken):
                    return True
    return False


def _duration_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that such a difference is assigned to."""
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))], value=value):
                if _is_difference(value):
                    names.add(name)
            case ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[value]):
                if _is_difference(value):
                    names.add(name)
            case _:
                pass
    return names


def _is_duration(node: ast.expr, taken: set[str]) -> bool:
    return _is_difference(node) or any(isinstance(part, ast.Name) and part.id in taken for part in ast.walk(node))


def _is_difference(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and any(_reads_a_clock(part) for part in ast.walk(node))
    )


def _reads_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCKS
