"""The conformance suite for states: an adapter is complete when its subclass of `StateSuite` passes.

    class TestMine(StateSuite):
        @pytest.fixture(autouse=True)
        def _server(self, my_server):
            self.url = my_server.url

        def open_state(self, name=""):
            return my_package.open_state(self.url, BrokerOptions(name=name))

One test calls `open_state` several times, as several processes on one server would. `advance` really waits; override
it if the adapter's clock can be moved. For detailed failures call
`pytest.register_assert_rewrite("taskmq.testing.state_suite")` in conftest.py.
"""

from taskmq.testing.state_suite.case import StateCase
from taskmq.testing.state_suite.checkpoints import Checkpoints
from taskmq.testing.state_suite.claims import Claims
from taskmq.testing.state_suite.closure import StateClosureCases
from taskmq.testing.state_suite.crash_counts import CrashCountCases
from taskmq.testing.state_suite.delays import Delays
from taskmq.testing.state_suite.leases import Leases
from taskmq.testing.state_suite.limits import LimitCases
from taskmq.testing.state_suite.models.checkpoints import CheckpointsByModel
from taskmq.testing.state_suite.models.delays import DelaysByModel
from taskmq.testing.state_suite.progress import Progress
from taskmq.testing.state_suite.results import Results
from taskmq.testing.state_suite.revocations import RevocationCases
from taskmq.testing.state_suite.schedules import ScheduleCases

__all__ = ["StateCase", "StateSuite"]


class StateSuite(
    Results,
    CrashCountCases,
    RevocationCases,
    Delays,
    DelaysByModel,
    Leases,
    LimitCases,
    Claims,
    Progress,
    ScheduleCases,
    Checkpoints,
    CheckpointsByModel,
    StateClosureCases,
    StateCase,
):
    """Every guarantee of `taskmq.contracts.stores`; for usage see the module."""
