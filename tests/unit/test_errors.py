import copy
import pickle
from datetime import timedelta

from taskmq import errors
from taskmq.control_flow import CallMismatch, Suspension, find_suspension

_CLASSES = [getattr(errors, name) for name in errors.__all__]


def _create_errors() -> list[Exception]:
    """Create errors with their own facts."""
    return [
        errors.Unroutable("images"),
        errors.Unroutable("images", "declare it"),
        errors.TooLarge(5_000, 1_000, "the message of a"),
        errors.QueueMissing("images"),
        errors.TaskFailed("job 1", type_name="ValueError", message="no", traceback="here", attempts=3),
        errors.PartlySent({2: errors.Unroutable("images"), 7: errors.TooLarge(2, 1, "it")}, 5),
        errors.SendError("plain"),
        errors.ResultTimeout("late"),
        errors.DuplicateJob("t", job_id="1"),
        errors.QuotaExceeded("t", tenant="acme", user=None, limit="rate", most=5, retry_after=0.5),
        errors.QuotaExceeded("t", tenant="acme", user="ann", limit="queued", most=5, retry_after=None),
        errors.PartlyReplayed(errors.SendError("no"), failed=1, replayed=2),
        errors.ResultExpired("job 1"),
        errors.RunFailed("flow 1", {"a": "no"}),
        errors.SavedValuesFull("job 1", "the signal 'ok'"),
        errors.SignalTimeout("job 1", "ok"),
        errors.RunClosed("it has ended", "flow 1"),
        errors.StateUnavailable("gone", is_certain=False),
        errors.StoreUnavailable("gone", is_certain=False),
        errors.JobConflict("it runs", state="running", version=3),
        errors.OccurrenceConflict(frozenset({(1, 60_000, "")})),
        errors.DefinitionConflict("changed", version=3),
        errors.LoginThrottled(2.5),
        errors.NotPermitted("no", permission="jobs.read"),
        errors.IdentityConflict("changed", version=3),
        errors.ConfirmationNeeded("no", permission="account.change"),
        errors.LimitReached("too many", most=100),
        errors.ServerUnavailable("gone", is_certain=False),
        errors.RequestRefused("no", status=409, code="conflict"),
        errors.InvalidFilter("no such field", column=3),
        errors.LockTimeout("lock", "who"),
        errors.LockLost("lock", 3),
        errors.SoftTimeout(),
        errors.MemoryExceeded("too much", limit=5),
        errors.ResultTooLarge("t", size=5, limit=4),
        errors.WorkerLost("gone", starts=2),
        errors.Retry(),
        errors.Retry("5s", "not yet"),
        errors.Snooze(5),
        errors.Snooze("1m", "busy"),
        errors.Reject("never"),
        errors.Ignore(),
    ]


def _facts(error: BaseException) -> dict[str, object]:
    return {name: str(value) for name, value in vars(error).items() if not name.startswith("__")}


def test_every_error_has_the_same_root_and_no_control_flow_exception_has_it() -> None:
    controls = {errors.TaskControl, errors.Retry, errors.Snooze, errors.Reject, errors.Ignore}

    for each in _CLASSES:
        assert issubclass(each, errors.TaskControl if each in controls else errors.TaskMQError), each
        assert not (issubclass(each, errors.TaskControl) and issubclass(each, errors.TaskMQError)), each


def test_an_error_has_the_name_of_its_public_place() -> None:
    places = {getattr(errors, name).__module__ for name in errors.__all__}

    assert places == {"taskmq.errors", "taskmq.control_flow"}


def test_every_class_is_documented_and_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("taskmq.")
    }

    assert defined == set(errors.__all__)
    assert all(each.__doc__ for each in _CLASSES)


def test_an_exception_keeps_message_and_facts_between_processes_and_in_copies() -> None:
    for error in _create_errors():
        for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(same) is type(error)
            assert str(same) == str(error)
            assert _facts(same) == _facts(error)


def test_every_exception_with_its_own_facts_is_covered() -> None:
    with_facts = {each for each in _CLASSES if "__init__" in vars(each)}

    assert with_facts <= {type(each) for each in _create_errors()}


def test_a_message_says_what_happened_to_what() -> None:
    assert str(errors.Unroutable("images")) == (
        "queue 'images' does not exist at the broker: start a worker for it, or declare it first"
    )
    assert str(errors.TooLarge(5_000_000, 1_000_000, "the body")) == (
        "the body has 5,000,000 bytes, the limit is 1,000,000: store the data elsewhere and send a reference"
    )
    assert str(errors.QueueMissing("images")) == "queue 'images' does not exist at the broker"
    assert str(errors.TaskFailed("j", type_name="ValueError", message="no", traceback="", attempts=3)) == (
        "job j failed after 3 attempt(s): ValueError: no"
    )
    assert str(errors.PartlySent({7: errors.SendError("b"), 2: errors.SendError("a")}, 5)) == (
        "2 of 7 calls were not sent; number 2: a"
    )


def test_control_flow_without_a_reason_still_has_a_message() -> None:
    for control in (errors.Retry(), errors.Snooze(1), errors.Ignore()):
        assert str(control)
    assert (errors.Retry().delay, errors.Retry().reason, errors.Snooze("1m").delay) == (None, "", "1m")


def test_a_suspension_passes_through_pickle_and_through_handlers_of_errors() -> None:
    suspension = Suspension("asleep until noon", 12, timedelta(hours=1))

    restored = pickle.loads(pickle.dumps(suspension))

    assert (str(restored), restored.until, restored.left) == ("asleep until noon", 12, timedelta(hours=1))
    assert not isinstance(restored, Exception)
    mismatch = pickle.loads(pickle.dumps(CallMismatch("its calls differ")))
    assert (type(mismatch), str(mismatch), mismatch.until) == (CallMismatch, "its calls differ", 0)


def test_a_group_of_suspensions_ends_a_run_with_the_one_that_is_over_first() -> None:
    early, late = Suspension("a", 1, timedelta()), Suspension("b", 2, timedelta())

    assert find_suspension(BaseExceptionGroup("", [late, BaseExceptionGroup("", [early])])) is early
    assert find_suspension(early) is early


def test_an_error_beside_a_suspension_ends_the_run_as_an_error() -> None:
    suspension = Suspension("a", 1, timedelta())

    assert find_suspension(BaseExceptionGroup("", [suspension, ValueError()])) is None
    assert find_suspension(ValueError()) is None
