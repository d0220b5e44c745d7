"""`taskmq schedule explain` for the reactions of a task."""

import asyncio

import msgspec

from taskmq.beat.topics import source_queue, topic_queue
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import note, print_record
from taskmq.errors import UnsupportedFeature
from taskmq.reactions import MessageComes, QueueMessageComes, ReactionStatus

__all__ = ["explain_reaction"]


def explain_reaction(name: str) -> None:
    """Explain a reaction, and show the events it has collected so far."""
    app = open_app()
    reaction = app.reactions[name]
    queues = [
        topic_queue(app.name, reaction, number)
        for number, condition in enumerate(reaction.plan.conditions)
        if isinstance(condition, MessageComes)
    ]
    for number, condition in enumerate(reaction.plan.conditions):
        if isinstance(condition, QueueMessageComes):
            queues.append(source_queue(app.name, reaction, number, condition, url="").name)
    facts: dict[str, object] = {
        "reaction": name,
        "task": reaction.task.name,
        "means": reaction.describe(),
        "seen by": "a beat" if reaction.needs_beat else "the worker that runs the job; a scheduler if none does",
    }
    if queues:
        facts["queues"] = ", ".join(queues)
    if not reaction.is_direct and (status := _status(name)) is not None:
        is_table = current_globals().output == "table"
        received = [f"{words}: {msgspec.json.encode(what).decode()}" for words, what in status.received.items()]
        facts |= {
            "received": "\n".join(f"  {each}" for each in received) if is_table else received,
            "fired": status.fired,
            "failed": status.failed,
            "dropped": status.dropped,
            "waiting": status.waiting,
        }
    print_record(facts)


def _status(name: str) -> ReactionStatus | None:
    app = open_app()

    async def read() -> ReactionStatus:
        async with app:
            return await app.reactions.astatus(name)

    try:
        return asyncio.run(read())
    except UnsupportedFeature as error:
        note(str(error))
        return None
