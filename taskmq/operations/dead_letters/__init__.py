"""Dead letters: looking at them, and sending them again, deleting or keeping them.

A dead letter is the job's message as it last was, with what happened in its headers. All functions go through a
queue the same way (`walk`): oldest first, some hundred letters at a time, each of which stays unsettled at the
broker until the walk ends. Then what was not settled is in its old place. So nothing here can lose a letter: when
this process or the broker dies, all that were passed are back in the queue.

    async with app:
        broker = app.sessions.current().broker
        lately = Choice(task="shop.*", error="TimeoutError", newer_than=timedelta(hours=1))
        timeouts = lately.at(app.sessions.clock.now_ms())
        for found in await group_letters(broker, "images"):
            print(found.count, found.task, found.error_type, found.sample)
        done = await replay(broker, "images", timeout=30, choose=timeouts, plan=Replay(rate=50))

Letters that are passed but not chosen are hidden from others until the walk ends, and count as unsettled there:
RabbitMQ closes the channel of who keeps a message for longer than its consumer timeout (30 minutes by default),
which ends the walk with `BrokerUnavailable` and gives all back. A replay with a `rate` that leaves letters behind
has to be done by then.
"""

from taskmq.operations.dead_letters.browse import LetterGroup, browse, group_letters, purge, visit
from taskmq.operations.dead_letters.export import letter_line, letter_record
from taskmq.operations.dead_letters.fingerprint import fingerprint
from taskmq.operations.dead_letters.letter import DeadLetter
from taskmq.operations.dead_letters.replay import Replay, Replayed, replay
from taskmq.operations.dead_letters.selection import Choose, LetterSelection
from taskmq.operations.dead_letters.walk import Progress, letter_queue, queues_with_letters

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
    "purge",
    "queues_with_letters",
    "replay",
    "visit",
]
