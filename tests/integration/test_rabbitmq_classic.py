"""The contract about settling, order, delays and limits holds for classic queues as well."""

from typing import Any

import pytest

from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite.browse import Browsing
from taskmq.testing.broker_suite.capacity import Limiting
from taskmq.testing.broker_suite.delays import Delaying
from taskmq.testing.broker_suite.order import Ordering
from taskmq.testing.broker_suite.settlement import Settling
from tests.integration.rabbitmq_case import SharedVhostCase

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]


class TestClassicQueues(Settling, Ordering, Delaying, Limiting, Browsing, SharedVhostCase):
    def new_queue(self, **options: Any) -> WorkQueue:
        return super().new_queue(**{"kind": "classic", **options})
