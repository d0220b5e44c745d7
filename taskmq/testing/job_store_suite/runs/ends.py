"""Tests of how the end of a job ends its step, whichever way the job ends."""

from typing import Any

import msgspec
from msgspec import to_builtins

from taskmq.contracts.jobs import MOST_VALUE_BYTES, NewInboxRow
from taskmq.model.envelope import JSON, MSGPACK, BlobReference
from taskmq.model.runs.records import RunState, StepKey
from taskmq.model.states import JobState
from taskmq.model.values.light_values import REFERENCE, LightValue, open_value, reference_to
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import after, error, new_id, report
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case


class RunEnds(JobStoreCase):
    """Ends of jobs, and the values that they leave."""

    @case
    async def test_each_report_of_an_end_ends_the_step(self) -> None:
        driver = RunDriver(self.store())
        expected = {"failed": "failed", "expired": "failed", "cancelled": "cancelled", "succeeded": "succeeded"}
        for kind, state in expected.items():
            run = await driver.start({"s": {"task": "t"}})
            await driver.settle()
            fields = {} if kind == "succeeded" else {"error": error("full", "OSError")}
            await driver.finish(run, "s", kind, **fields)  # type: ignore[arg-type]

            step = await driver.step(run, "s")
            assert str(step.state) == state, kind
            assert step.error == ("" if kind == "succeeded" else "OSError: full")

    @case
    async def test_an_operator_who_ends_a_waiting_job_ends_the_step(self) -> None:
        driver = RunDriver(self.store())
        for state in (JobState.CANCELLED, JobState.EXPIRED):
            run = await driver.start({"s": {"task": "t", "held": True}})
            await driver.settle()
            job = await driver.read((await driver.step(run, "s")).job)

            await driver.expect_update(job, state, kind="cancel", error=error("why", ""))
            await driver.settle()

            step = await driver.step(run, "s")
            assert (str(step.state), step.error) == (
                "cancelled" if state is JobState.CANCELLED else "failed",
                "why",
            )

    @case
    async def test_a_job_that_is_given_up_ends_the_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()
        (job,) = (await driver.dispatch()).jobs

        await driver.fail(job, reason="no worker knows it")
        await driver.settle()

        step = await driver.step(run, "s")
        assert (str(step.state), step.error) == ("failed", "no worker knows it")

    @case
    async def test_a_job_that_expires_in_its_queue_fails_the_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t", "expires": 1}})
        await driver.settle()

        assert await driver.try_dispatch() is None
        await driver.settle()

        step = await driver.step(run, "s")
        assert (str(step.state), step.error) == ("failed", "the job expired before it started")

    @case
    async def test_a_job_whose_dependency_fails_ends_the_step_as_upstream_failed(self) -> None:
        driver = RunDriver(self.store())
        first = await driver.dispatch_new(queue="first")
        run = await driver.start({"s": {"task": "t", "after": first.id}})
        await driver.settle()

        await driver.expect_accepted(first, "failed")
        await driver.release()
        await driver.settle()

        step = await driver.step(run, "s")
        assert str(step.state) == "upstream_failed"
        assert first.id in step.error
        assert (await driver.run(run)).state is RunState.FAILED

    @case
    async def test_a_job_with_an_unknown_dependency_fails_the_step(self) -> None:
        driver = RunDriver(self.store())
        other = new_id(0)
        run = await driver.start({"s": {"task": "t", "after": other}})

        await driver.settle()

        step = await driver.step(run, "s")
        assert (str(step.state), step.error) == ("failed", f"the job depends on job {other}, and that is unknown")

    @case
    async def test_a_job_that_another_one_replaces_ends_its_step_as_cancelled(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t", "unique": "u"}})
        await driver.settle()

        other = await driver.start({"s": {"task": "t", "unique": "u"}})
        await driver.settle()

        job = (await driver.step(other, "s")).job
        step = await driver.step(run, "s")
        assert (str(step.state), step.error) == ("cancelled", f"JobCancelled: replaced by job {job}")
        await driver.finish(other, "s")
        assert (await driver.states(other))["s"] == "succeeded"

    @case
    async def test_a_job_whose_unique_key_is_taken_fails_its_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t", "unique": "u"}})
        await driver.settle()
        await driver.finish(run, "s", "started")
        first = (await driver.step(run, "s")).job

        other = await driver.start({"s": {"task": "t", "unique": "u"}})
        await driver.settle()

        assert (await driver.step(other, "s")).error == f"job {first} exists already and has the job's key"

    @case
    async def test_a_retry_does_not_end_the_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()
        (job,) = (await driver.dispatch()).jobs
        await driver.expect_accepted(job, "retry", error=error("again"))
        assert await driver.runs.pending(limit=10) == []

        await driver.expect_accepted(
            await driver.again(job), "succeeded", result=b"1", content_type="application/json"
        )
        await driver.settle()

        assert await driver.value(run, "s") == 1

    @case
    async def test_a_late_report_of_a_job_changes_nothing(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}, "t": {"task": "t"}})
        await driver.settle()
        await driver.finish(run, "s", value=1)
        job = await driver.read((await driver.step(run, "s")).job)

        (applied,) = await driver.schedulers.apply([report(job, "failed")])

        assert applied.outcome == "superseded"
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_a_cancellation_before_the_end_of_a_step_is_applied_before_it(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}})
        await driver.advance(run)
        (job,) = (await driver.dispatch()).jobs

        assert await driver.runs.send(run, NewInboxRow(kind="cancel", id="c"))
        await driver.schedulers.apply([report(job, "succeeded")])
        await driver.advance(run)
        await driver.settle()

        assert await driver.states(run) == {"a": "succeeded", "b": "cancelled"}
        assert (await driver.step(run, "b")).job == ""
        assert (await driver.run(run)).state is RunState.CANCELLED

    @case
    async def test_the_end_of_a_step_counts_although_another_scheduler_has_advanced_the_run(self) -> None:
        driver, other = RunDriver(self.store()), RunDriver(self.store())
        run = await driver.start({"a": {"task": "t"}, "w": {"wait": "go"}, "b": {"task": "t", "needs": ["a", "w"]}})
        await driver.advance(run)
        (job,) = (await driver.dispatch()).jobs
        assert await other.send(run, NewInboxRow(kind="signal", id="s", name="go")) == "consumed"

        await driver.schedulers.apply([report(job, "succeeded")])
        await driver.advance(run)

        assert await driver.states(run) == {"a": "succeeded", "w": "succeeded", "b": "running"}
        assert await driver.runs.pending(limit=1) == []

    @case
    async def test_other_jobs_may_depend_on_the_job_of_a_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()
        job = await driver.read((await driver.step(run, "s")).job)
        other = await driver.submit(queue="other", detail=after(job))

        await driver.finish(run, "s")
        await driver.release()

        assert await driver.state(other) is JobState.QUEUED

    @case
    async def test_a_result_in_messagepack_becomes_json(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()

        await driver.finish(run, "s", result=msgspec.msgpack.encode({"a": [1, None]}), content_type=MSGPACK)

        assert await driver.value(run, "s") == {"a": [1, None]}

    @case
    async def test_a_task_without_a_result_has_null(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()

        await driver.finish(run, "s", result=b"", content_type="")

        assert await driver.value(run, "s") is None

    @case
    async def test_a_result_that_no_step_can_use_fails_the_step(self) -> None:
        driver = RunDriver(self.store())
        results = {
            REFERENCE: (b"{}", "the result at results_at= has the content type 'unknown'"),
            MSGPACK: (
                msgspec.msgpack.encode({1: {2: msgspec.msgpack.Ext(7, b"x")}}),
                "the result has no form in JSON",
            ),
            "image/png": (b"x", "the result has the content type 'image/png'"),
            "application/json": (b'"' + b"x" * MOST_VALUE_BYTES + b'"', "the result has 8,388,610 bytes"),
        }
        for content_type, (result, reason) in results.items():
            run = await driver.start({"s": {"task": "t"}})
            await driver.settle()

            await driver.finish(run, "s", result=result, content_type=content_type)

            step = await driver.step(run, "s")
            assert str(step.state) == "failed", content_type
            assert step.error.startswith(reason)

    @case
    async def test_steps_and_runs_get_a_reference_to_a_result_that_is_kept_elsewhere(self) -> None:
        driver = RunDriver(self.store())
        steps = {
            "a": {"task": "t"},
            "b": {"each": "${steps.c.result}", "task": "t"},
            "c": {"value": [1, 2]},
            "d": {"task": "t", "args": ["${steps.a.result}"], "with": {"all": "${steps.b.result}"}},
            "e": {"value": "${steps.a.result}"},
        }
        run = await driver.start(steps)
        await driver.settle()
        blob = BlobReference(name="2027/x", size=MOST_VALUE_BYTES + 1, sha256="00")
        kept: dict[str, Any] = {"result": reference_to(JSON, blob), "content_type": REFERENCE}

        await driver.finish(run, "a", **kept)
        await driver.finish(run, "b", child=0, value="small")
        await driver.finish(run, "b", child=1, **kept)

        whole: dict[str, Any] = {"at": [], "blob": to_builtins(blob)}
        found = await driver.runs.values(run, [StepKey("a"), StepKey("b"), StepKey("b", 1)])
        assert {key: _parts(value) for key, value in found.items()} == {
            StepKey("a"): [whole],
            StepKey("b"): [{**whole, "at": [1]}],
            StepKey("b", 1): [whole],
        }
        parts = [{**whole, "at": ["args", 0]}, {**whole, "at": ["kwargs", "all", 1]}]
        assert await driver.arguments(run, "d") == [[None], {"all": ["small", None]}, parts]

        await driver.finish(run, "d", "failed", error=error("full"))
        await driver.send(run, NewInboxRow(kind="redrive", id="again"))
        assert await driver.arguments(run, "d") == [[None], {"all": ["small", None]}, parts]
        await driver.finish(run, "d", value=3)

        value = await driver.runs.run_value(run)
        assert value is not None
        assert _parts(value) == [{**whole, "at": ["e"]}]

    @case
    async def test_a_result_in_messagepack_that_is_kept_elsewhere_fails_the_step(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        await driver.settle()
        blob = BlobReference(name="2027/x", size=MOST_VALUE_BYTES + 1, sha256="00")

        await driver.finish(run, "s", result=reference_to(MSGPACK, blob), content_type=REFERENCE)

        assert (await driver.step(run, "s")).error.startswith(
            "the result at results_at= has the content type 'application/msgpack'"
        )


def _parts(stored: bytes) -> Any:
    """Return the parts that a stored value lacks."""
    value = open_value(stored)
    assert isinstance(value, LightValue)
    return msgspec.json.decode(msgspec.json.encode(value.parts))
