"""Events: the items of a stream, and their fields."""

from typing import assert_type

from taskmq import EventStream, JobEvent, TaskMQ, WorkerEvent

app = TaskMQ()


async def listens() -> None:
    assert_type(app.events("job.dead.#", buffer=10), EventStream)
    async with app.events() as events:
        assert_type(events, EventStream)
        assert_type(events.missed, int)
        assert_type(events.dropped, int)
        async for event in events:
            match event:
                case JobEvent():
                    assert_type(event.job_id, str)
                    assert_type(event.seconds, float | None)
                    event.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
                case WorkerEvent():
                    assert_type(event.status.slots, int)
                    assert_type(event.status.queues, list[str])
    app.events(buffer="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
