"""Rules that keep the gate honest and its failures readable: each test is run, and its name fits a line."""

import ast
import re
from collections.abc import Iterable
from typing import Final

from tests.house.tree import ROOT, functions, modules_of_tests, modules_with_tests, nodes

_LONGEST_NAME = 80
# Words that hide who acts, and first words that start a clause.
_ODD = re.compile(
    r"^test_(?:what|who|whom|which|those|these|that|such|it|its|they|their|of|for|from|how|when|why|where|is|are|has)_"
    r"|_(?:whom|whoever|somebody|nobody|anybody|everybody|said|things?|mends?|go_on|goes_on|is_there|are_there)(?:_|$)"
)


def test_the_name_of_a_test_describes_the_behaviour_in_80_characters() -> None:
    found = {
        f"{module.where}:{node.lineno}: {node.name}"
        for module in modules_with_tests()
        for node in functions(module.tree)
        if len(node.name) > _LONGEST_NAME
    }

    assert found == set()


def test_the_name_of_a_test_names_its_subject() -> None:
    """Write a sentence of plain English: "a worker requeues the job", not "what is given back comes again"."""
    found = {
        f"{module.where}:{node.lineno}: {node.name}"
        for module in modules_with_tests()
        for node in functions(module.tree)
        if node.name.startswith("test_") and _ODD.search(node.name)
        # A suite names its own tests, and a class here overrides some.
        if not any("case" in ast.unparse(decorator) for decorator in node.decorator_list)
    }

    assert found == set()


# Reason -> file -> tests.
_RUN_BY_HAND: Final[dict[str, dict[str, set[str]]]] = {
    "Something is made, or a thread or a server started, before the loop begins.": {
        "integration/test_large_results.py": {
            "test_large_results_go_through_a_bucket",
            "test_values_are_deleted_hour_by_hour_after_their_lifetime",
        },
        "integration/test_redis_faults.py": {
            "test_a_silently_dead_connection_is_noticed_by_its_listener",
            "test_a_wrong_password_is_reported_and_not_shown",
        },
        "integration/test_redis_places.py": {"test_a_slot_that_moves_to_another_node_is_followed"},
        "unit/beat/test_steps.py": {"test_a_replica_that_dies_at_any_step_loses_and_doubles_no_occurrence"},
        "unit/durable/test_relay.py": {
            "test_a_refused_message_does_not_delay_those_behind_it",
            "test_messages_keep_all_their_properties",
            "test_the_relay_waits_while_the_state_is_down_and_then_continues",
        },
        "unit/executors/test_process_limits.py": {"test_the_time_to_import_the_app_does_not_count_as_run_time"},
        "unit/jobs/test_delayed.py": {"test_a_rescheduled_job_runs_at_its_new_time_with_its_own_body"},
        "unit/rabbitmq/connect/test_credentials.py": {"test_an_unreachable_token_server_is_named"},
        "unit/scheduler/test_preemption.py": {
            "test_a_large_job_gets_a_node_from_preemptible_jobs",
            "test_runs_with_a_gpu_are_preempted_only_for_a_pool_that_is_owed_one",
        },
        "unit/scheduler/test_schedules.py": {
            "test_after_two_hours_without_schedulers_each_mode_catches_up_within_its_limit"
        },
        "unit/worker/guards/test_limits.py": {
            "test_the_permits_of_a_dead_process_are_free_at_once",
            "test_jobs_with_the_longest_wait_do_not_all_return_together",
        },
        "unit/worker/run/test_poison.py": {"test_the_limit_of_starts_can_be_set_and_disabled"},
        "unit/workflow/test_batches.py": {"test_an_invalid_batch_is_refused_before_anything_is_sent"},
    },
    "hypothesis and what runs the test both give it arguments.": {
        "unit/beat/test_beat.py": {"test_each_due_occurrence_is_emitted_once_however_time_passes"},
        "unit/scheduler/test_histories.py": {"test_every_job_ends_once_in_any_history_and_none_is_left_in_flight"},
        "unit/worker/guards/test_reactions.py": {"test_every_job_gets_one_follower_despite_any_failure"},
    },
    "A parametrised test of a suite, which runs its tests itself.": {
        "integration/test_rabbitmq_delays.py": {
            "test_a_worker_returns_an_early_task_to_wait",
            "test_no_task_starts_early_by_the_clock_of_the_worker",
        },
        "integration/test_rabbitmq_queue_kinds.py": {"test_a_queue_with_other_properties_is_refused_and_stays"},
    },
    "It has a bound of its own.": {
        "integration/test_local_processes.py": {
            "test_every_message_confirmed_to_a_killed_producer_exists",
            "test_nothing_is_lost_while_processes_send_and_are_killed_at_random",
        },
        "unit/worker/long_runs/test_guard.py": {
            "test_no_job_is_lost_and_none_runs_more_often_than_the_faults_explain"
        },
    },
    "A name means something else in another function of the test.": {
        "unit/durable/test_service.py": {"test_a_call_runs_unless_an_event_is_set_first_or_its_time_is_over"},
        "unit/jobs/test_delayed.py": {"test_a_job_replaced_during_its_rescheduling_keeps_the_replacement"},
        "unit/local/memory/test_broker.py": {"test_a_producer_on_the_loop_of_another_thread_wakes_the_consumer"},
        "unit/local/state/test_state.py": {"test_a_put_on_the_loop_of_another_thread_wakes_a_waiter"},
        "unit/run/test_members.py": {"test_a_member_that_others_lost_is_reported"},
        "unit/scheduler/test_reports.py": {"test_an_inapplicable_report_stops_no_other_and_fails_its_job"},
        "unit/worker/run/test_journal_service.py": {"test_a_fork_of_a_thread_task_cannot_save"},
    },
}


def test_a_test_that_only_runs_a_coroutine_is_async() -> None:
    """pytest runs `async def test_...`; `tests.coroutines.run_by` is for tests that receive objects."""
    found = {
        f"{module.path.relative_to(ROOT / 'tests')}: {node.name}"
        for module in modules_with_tests()
        for node in nodes(module.tree, ast.FunctionDef)
        if node.name.startswith("test_") and _only_runs_a_coroutine(node)
    }

    listed = {f"{file}: {name}" for files in _RUN_BY_HAND.values() for file, names in files.items() for name in names}
    assert found == listed


def _only_runs_a_coroutine(test: ast.FunctionDef) -> bool:
    """Whether its last statement runs a coroutine that is defined right before it, and needs nothing else of it."""
    match test.body[-2:]:
        case [
            ast.AsyncFunctionDef(name=name),
            ast.Expr(
                value=ast.Call(args=[ast.Name(id=ran) | ast.Call(func=ast.Name(id=ran)), *rest], keywords=keywords)
            ),
        ]:
            options = [*rest, *(each.value for each in keywords)]
            return ran == name and not _names(options) & {*_names(test.args.args), *_bound_names(test)}
        case _:
            return False


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    found = [each for node in nodes for each in ast.walk(node)]
    return {each.id for each in found if isinstance(each, ast.Name)} | {
        each.arg for each in found if isinstance(each, ast.arg)
    }


def _bound_names(test: ast.FunctionDef) -> set[str]:
    """Return the names that the test binds before the coroutine."""
    functions = {each.name for each in test.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return functions | {
        each.id
        for node in test.body[:-2]
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def test_a_nightly_test_names_its_proof_in_the_gate() -> None:
    for module in modules_of_tests():
        marks = [node for node in nodes(module.tree, ast.Attribute) if node.attr == "nightly"]
        calls = [node for node in nodes(module.tree, ast.Call) if node.func in marks]
        where = module.where
        assert len(calls) == len(marks), f"{where} has a mark that names no test"
        for call in calls:
            (named,) = [ast.literal_eval(argument) for argument in call.args]
            file, _, test = named.partition("::")
            assert (ROOT / file).exists(), f"{where}: {file} does not exist"
            assert not test or f"def {test}(" in (ROOT / file).read_text(), f"{where}: {named} does not exist"
