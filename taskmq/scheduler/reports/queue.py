"""The queue to which workers report the jobs of one partition."""

from collections.abc import Sequence

from taskmq.client.session import Session
from taskmq.model.topology import ReportQueue, jobs_queue, parcels_queue


class ReportsQueue:
    """The reports queue of one partition, which also receives the invitations that the broker drops."""

    def __init__(self, session: Session, name: str) -> None:
        self.name = name
        self._session = session
        self._letters: set[str] = set()

    async def declare(self, queues: Sequence[str] = ()) -> None:
        """Declare the queue, and route dropped invitations of these queues to it.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: it exists with other properties.
        """
        letters = {name for queue in queues for name in (jobs_queue(queue), parcels_queue(queue))}
        if letters and letters <= self._letters:
            return
        names = tuple(sorted(letters | self._letters))
        await self._session.broker.declare_reports([ReportQueue(self.name, letters_of=names)])
        self._letters |= letters
