"""The dead-letter queue of one queue, made once it may be needed."""

import asyncio
from typing import Final

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import TaskMQError
from taskmq.model.topology import dead_letter_queue
from taskmq_rabbitmq.amqp.received_properties import Properties, headers_of
from taskmq_rabbitmq.declare.declarations import Declarations

_log = contained_logger(__name__)
# Number of returns, of a hundred allowed by default.
_OFTEN_RETURNED: Final = 2
_RETURNS: Final = "x-delivery-count"


class LetterQueue:
    """The dead-letter queue of one queue.

    Attributes:
        making: the task that declares it; None while there is none.
    """

    def __init__(self, queue: str, declarations: Declarations, loop: asyncio.AbstractEventLoop) -> None:
        self.making: asyncio.Task[None] | None = None
        self._queue = queue
        self._declarations = declarations
        self._loop = loop

    def on_returned(self, properties: Properties) -> None:
        """Declare the dead-letter queue for a redelivered message, before RabbitMQ gives the message up."""
        if self.making is not None:
            return
        count = headers_of(properties).get(_RETURNS)
        if isinstance(count, int) and count >= _OFTEN_RETURNED and self._declarations.lacks_letters(self._queue):
            self.making = self._loop.create_task(self._make(), name=f"taskmq letters of {self._queue}")

    async def _make(self) -> None:
        try:
            await self._declarations.restore(dead_letter_queue(self._queue))
        except TaskMQError as error:
            # Retried with the next redelivery.
            _log.debug("queue %r has no dead-letter queue: %s", self._queue, error)
        finally:
            self.making = None
