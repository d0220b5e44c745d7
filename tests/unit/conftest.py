import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# Two cores are shared by everybody: how fast an example runs says nothing, so there is no deadline.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# The same examples everywhere, whatever the machine's environment says: a gate that fails is to fail again.
settings.register_profile("gate", _CALM, max_examples=40, derandomize=True)
settings.register_profile("search", _CALM, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Let the lines of a simulation not be counted: it runs the same ones very often, and shorter tests do, too."""
    trace = sys.gettrace()
    if trace is not None and item.get_closest_marker("simulation") is not None:
        sys.settrace(None)
        try:
            return (yield)
        finally:
            sys.settrace(trace)
    return (yield)
