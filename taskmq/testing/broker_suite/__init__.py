"""The conformance suite for brokers: an adapter is complete when its subclass of `BrokerSuite` passes.

    import pytest
    pytest.register_assert_rewrite("taskmq.testing.broker_suite")   # in conftest.py: detailed failures

    from taskmq.testing.broker_suite import BrokerSuite

    class TestMine(BrokerSuite):
        @pytest.fixture(autouse=True)
        def _server(self, my_server):
            self.process_url = my_server.url                # a URL that another process can open

        def open_broker(self, name=""):
            return my_package.open_broker(self.process_url, BrokerOptions(name=name))

One test calls `open_broker` several times, as several processes on one server would. The tests are plain methods,
each with its own event loop and a deadline, and need no pytest plugin. Each test uses new queue names; override
`discard` if the server outlives the tests. `process_url` and `can_lose` declare optional abilities (see
`BrokerCase`); tests of a missing ability are skipped.

No test waits for silence. To show that a message does not arrive, a test publishes another one behind it and
receives that one first.
"""

from taskmq.testing.broker_suite.administration import Administration
from taskmq.testing.broker_suite.broadcasts import BroadcastingTests
from taskmq.testing.broker_suite.browse import Browsing
from taskmq.testing.broker_suite.cancellation import Cancelling
from taskmq.testing.broker_suite.capacity import Limiting
from taskmq.testing.broker_suite.case import BrokerCase, Inbox, message
from taskmq.testing.broker_suite.closure import BrokerClosureCases
from taskmq.testing.broker_suite.consumers import Consuming
from taskmq.testing.broker_suite.delays import Delaying
from taskmq.testing.broker_suite.order import Ordering
from taskmq.testing.broker_suite.publish import Publishing
from taskmq.testing.broker_suite.publish_many import PublishingManyTests
from taskmq.testing.broker_suite.settlement import Settling

__all__ = ["BrokerCase", "BrokerSuite", "Inbox", "message"]


class BrokerSuite(
    Publishing,
    PublishingManyTests,
    Consuming,
    Settling,
    Delaying,
    Ordering,
    Limiting,
    Browsing,
    Administration,
    BroadcastingTests,
    BrokerClosureCases,
    Cancelling,
    BrokerCase,
):
    """Every guarantee of `taskmq.contracts.broker.Broker`; for usage see the module."""
