"""What the contract promises about settling, order, delays and limits holds for classic queues as well."""

from typing import Any

import pytest

from taskmq.testing.broker_suite.delaying import Delaying
from taskmq.testing.broker_suite.holding import Holding
from taskmq.testing.broker_suite.limiting import Limiting
from taskmq.testing.broker_suite.ordering import Ordering
from taskmq.testing.broker_suite.settling import Settling
from taskmq.topology import WorkQueue
from tests.integration.rabbitmq_case import SharedVhostCase

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


class TestClassicQueues(Settling, Ordering, Delaying, Limiting, Holding, SharedVhostCase):
    def undeclared(self, **options: Any) -> WorkQueue:
        return super().undeclared(**{"kind": "classic", **options})
