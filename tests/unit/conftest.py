import os

from hypothesis import HealthCheck, settings

# Two cores are shared by everybody: how fast an example runs says nothing, so there is no deadline.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# The same examples everywhere, whatever the machine's environment says: a gate that fails is to fail again.
settings.register_profile("gate", _CALM, max_examples=100, derandomize=True)
settings.register_profile("search", _CALM, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
