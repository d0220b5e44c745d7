"""Dead letters: browse, replay, purge and export them.

A dead letter is the job's last message; its headers say what happened. All functions read a queue the same way
(`walk`): oldest first, some hundred letters at a time. Each letter stays unsettled at the broker until the walk ends.
Letters that were not settled then return to their old positions. So nothing here can lose a letter: if this process
or the broker dies, every letter that was read is back in the queue.

    async with app:
        broker = app.sessions.current().broker
        recent = LetterSelection(task="shop.*", error="TimeoutError", newer_than=timedelta(hours=1))
        for found in await group_letters(broker, "images"):
            print(found.count, found.task, found.error_type, found.sample)
        done = await replay_letters(app, "images", recent, plan=Replay(rate=50), by="ann")

`replay_letters` and `purge_letters` of `taskmq.operations.letter_changes` leave an entry in the audit. `replay` and
`purge` take a broker and leave none.

Letters that were read but not chosen stay hidden from other readers until the walk ends, and count as unsettled.
RabbitMQ closes the channel of a reader that keeps a message longer than the consumer timeout (30 minutes by default).
The walk then ends with `BrokerUnavailable`, and all letters return to the queue. A replay with a `rate` that leaves
letters behind must therefore end within that time.
"""

from taskmq.operations.dead_letters.browse import LetterGroup, browse, group_letters, purge, visit
from taskmq.operations.dead_letters.export import letter_line, letter_record
from taskmq.operations.dead_letters.fingerprint import fingerprint
from taskmq.operations.dead_letters.letter import DeadLetter
from taskmq.operations.dead_letters.replay import Replay, Replayed, replay
from taskmq.operations.dead_letters.selection import Choose, LetterSelection
from taskmq.operations.dead_letters.walk import Progress, letter_queue, list_queues_with_letters

__all__ = [
    "Choose",
    "DeadLetter",
    "LetterGroup",
    "LetterSelection",
    "Progress",
    "Replay",
    "Replayed",
    "browse",
    "fingerprint",
    "group_letters",
    "letter_line",
    "letter_queue",
    "letter_record",
    "list_queues_with_letters",
    "purge",
    "replay",
    "visit",
]
