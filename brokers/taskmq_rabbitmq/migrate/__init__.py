"""Migration: `taskmq topology migrate` recreates queues with other properties and loses no message.

Only its command loads this package.

    Migration replaces each queue: moves its messages aside, deletes it, declares it as wanted, moves them back; any
        step may be repeated after a crash QueueMover moves messages from one queue to another: a copy is confirmed
        before its original is acked PublisherLockout keeps publishers out of the virtual host while a classic queue
        is deleted message_copy the properties of a copy, byte for byte except for RabbitMQ's own additions (pure)
    QueueMover         moves messages from one queue to another: a copy is confirmed before its original is acked
    PublisherLockout   keeps publishers out of the virtual host while a classic queue is deleted
    message_copy       the properties of a copy, byte for byte but for what RabbitMQ adds itself (pure)

A message is in one of two queues at every moment; after a crash it can be in both, with one id. A queue
`taskmq.migration.Q` at the broker shows that a migration of `Q` has started and not ended: running the command again
ends it.
"""

from taskmq_rabbitmq.migrate.migration import Migration
from taskmq_rabbitmq.migrate.publisher_lockout import PublisherLockout

__all__ = ["Migration", "PublisherLockout"]
