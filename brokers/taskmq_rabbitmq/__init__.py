"""RabbitMQ as a broker for taskmq, over pika on the running asyncio loop.

Model. A `RabbitMQBroker` belongs to one loop and has two connections, each opened on first use: one publishes,
one consumes, because RabbitMQ stops reading from connections that publish when it is short of memory or disk,
and acknowledgements must go on then. A `Connection` opens itself again whenever it is lost:

    idle -> connecting -> open -> (lost) -> waiting (full jitter, 0.2 s to 4 s) -> connecting ...

with a pause after each round of all nodes, and counts its openings as generations. Silence for 1.5 to 1.75
heartbeats is a loss (`SilenceDetector`). Nothing is carried over from one to the next but what is written here:

- The publisher has one channel in confirm mode. What is unconfirmed when it ends is published again on the next,
  with the same message id and the header `x-taskmq-republished`.
- Each consumed queue has its own channel (`Feed`) and its own task that replaces it, with a new consumer tag; while
  the broker does not answer, it begins on one channel after the other, and the first that is answered stays. A
  delivery knows its feed; settling one whose channel has ended does nothing and is counted.
- What was declared or found (`Declarations`) is looked at once more in each generation. Declares, looks and
  purges run on channels of their own, because a refusal costs the channel. After quorum queues that are new one
  more is declared and deleted, or a broker that dies at once would have forgotten the last of them
  (`metadata_flush`).
- What the broker refuses costs the publisher's channel: the refused message ends with its error (`refusals`), all
  others go out again.
- Announcements have a channel of their own on the publishing connection, without confirms, and are dropped where the
  publisher would wait (`BroadcastPublisher`). A listener has an exclusive queue, on the consuming connection, and
  makes another one when that is lost (`RabbitMQListener`).
- A `Watchdog` per consumer object compares every 30 s what is consumed with what the broker says, replaces dead
  consumers, and renews those that have been idle for some minutes.

Promises. The future of `publish` ends inside its deadline: None is only set after the broker's confirm, with
`mandatory` on; a delayed message is written only once its queue is known to be bound to the ladder's end.
`PublishUnknown` is the one error after which the message may exist. A message may be there twice: after a
publishing connection was lost with confirms outstanding, after a consumer's channel ended before an ack, and
when RabbitMQ's own dead-letter worker restarts on the delay ladder. All copies carry the same message id.

Per message. No task, no timer, no log line. Deliveries and confirms are read from the received bytes and publishes
and settlings written as ready bytes (`frames`), beside pika on its own connection (`fast_connection`); the frames of
one turn of the loop leave in one write, or by the dozen where they are many, past pika's transport where there is no
TLS (`direct_socket`). Messages of one task to one queue share their ready bytes (`publish_template`). `?wire=plain`
in the URL leaves all frames to pika. Messages are written in `pending` and come in through `Feed.receive`, and
nowhere else.

Packages: `model` decides and is pure; `amqp` is the border with pika, and the fast way past it; `connect` opens and
keeps connections; `declare`, `publish` and `consume` use them. `admin` (the doctor, topology as code) and `migrate`
load on demand.
"""

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq_rabbitmq.broker import RabbitMQBroker
from taskmq_rabbitmq.model.url import parse_url

__all__ = ["RabbitMQBroker", "open_broker"]


def open_broker(url: str, options: BrokerOptions) -> Broker:
    """A broker for an `amqp://` or `amqps://` URL, not yet connected.

    Raises:
        InvalidSetting: the URL, or a certificate that it names, cannot be read.
    """
    return RabbitMQBroker(parse_url(url), options)
