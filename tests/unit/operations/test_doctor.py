import asyncio

from taskmq import TaskMQ
from taskmq.operations.doctor import examine
from tests.unit.app_kit import new_url


def test_an_installation_without_workers_is_told_what_is_missing() -> None:
    app = TaskMQ(new_url())

    @app.task(name="resize", queue="images")
    def resize(number: int) -> None: ...

    async def main() -> None:
        before = await examine(app)
        async with app:
            await app.tasks["resize"].asend(1)
            after = await examine(app)

        assert before.is_complete
        assert not before.has_problem
        assert ("warning", "images", "the queue does not exist yet", "start a worker") in before.findings
        assert after.has_problem
        (problem,) = [finding for finding in after.findings if finding.level == "problem"]
        assert (problem.about, problem.finding) == ("images", "no consumer, 1 messages wait")

    asyncio.run(main())


def test_a_broker_that_cannot_be_reached_is_a_finding() -> None:
    examination = asyncio.run(examine(TaskMQ("amqp://guest:S3CRET@127.0.0.1:1/", send_timeout="1s")))

    assert not examination.is_complete
    assert examination.has_problem
    assert "S3CRET" not in str(examination.findings)
