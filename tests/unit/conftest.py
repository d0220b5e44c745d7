import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# All tests share two cores: the run time of an example proves nothing, so there is no deadline.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# The same examples everywhere, regardless of the environment: a failing gate must fail again.
settings.register_profile("gate", _CALM, max_examples=12, derandomize=True)
settings.register_profile("search", _CALM, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_collection_finish() -> None:
    # The first strategy of texts tries to encode every character, for a second: do it before processes are forked.
    st.text().validate()
