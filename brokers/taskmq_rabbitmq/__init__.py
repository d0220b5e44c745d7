"""RabbitMQ as a broker for taskmq, over pika on the running asyncio loop.

Model. A `RabbitMQBroker` belongs to one loop and has two connections, each opened on first use. One publishes and one
consumes, because RabbitMQ stops reading from publishing connections when it is short of memory or disk, and
acknowledgements must continue then. A `Connection` reopens itself whenever it is lost:

    idle -> connecting -> open -> (lost) -> waiting (full jitter, 0.2 s to 4 s) -> connecting ...

with a pause after each round of all nodes, and counts its openings as generations. Silence for 1.5 to 1.75 heartbeats
is a loss (`SilenceDetector`). A new generation keeps only what is written here:

- The publisher has one channel in confirm mode. Messages that are unconfirmed when it ends are published again on the
  next, with the same message id and the header `x-taskmq-republished`.
- Each consumed queue has its own channel (`Feed`) and its own task that replaces it, with a new consumer tag. While
  the broker does not answer, it opens one channel after the other, and keeps the first that is answered. A delivery
  knows its feed; settling one whose channel has ended does nothing and is counted.
- Declared and found objects (`Declarations`) are checked once more in each generation. Declares, checks and purges
  run on channels of their own, because a refusal closes the channel. After new quorum queues one more is declared and
  deleted; otherwise a broker that dies immediately would forget the last of them (`metadata_flush`).
- A refusal by the broker closes the publisher's channel: the refused message ends with its error (`refusals`), all
  others are published again.
- Announcements have a channel of their own on the publishing connection, without confirms, and are dropped when the
  publisher would wait (`BroadcastPublisher`). A listener has an exclusive queue on the consuming connection, and
  declares another one when that is lost (`RabbitMQListener`).
- A `Watchdog` per consumer object compares consumers with the broker every 30 s, replaces dead ones, and renews those
  that were idle for some minutes.

Promises. The future of `publish` ends within its deadline: None is only set after the broker's confirm, with
`mandatory` on; a delayed message is written only once its queue is known to be bound to the ladder's end.
`PublishUnknown` is the one error after which the message may exist. A message may exist twice: after a publishing
connection was lost with outstanding confirms, after a consumer's channel ended before an ack, and when RabbitMQ's own
dead-letter worker restarts on the delay ladder. All copies carry the same message id.

Per message. No task, no timer, no log line. `frames` reads deliveries and confirms from the received bytes, and
writes publishes and settlements as ready bytes, next to pika on its own connection (`fast_connection`). The frames of
one turn of the loop leave in one write, or in dozens if they are many, and without TLS they bypass pika's transport
(`direct_socket`). Messages of one task to one queue share their ready bytes (`publish_template`). `?wire=plain` in
the URL leaves all frames to pika. Messages are written only in `pending`, and received only by `Feed.receive`.

Packages: `model` decides and is pure; `amqp` is the border with pika and the fast path around it; `connect` opens and
keeps connections; `declare`, `publish` and `consume` use them. `admin` (the doctor, topology as code) and `migrate`
are imported on demand.
"""

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq_rabbitmq.broker import RabbitMQBroker
from taskmq_rabbitmq.model.url import parse_url

__all__ = ["RabbitMQBroker", "open_broker"]


def open_broker(url: str, options: BrokerOptions) -> Broker:
    """Create a broker for an `amqp://` or `amqps://` URL, not yet connected.

    Raises:
        InvalidSetting: the URL, or a certificate that it names, cannot be read.
    """
    return RabbitMQBroker(parse_url(url), options)
