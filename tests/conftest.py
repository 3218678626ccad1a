"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: how long drawing an example takes says nothing of us.
settings.register_profile("lustrum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lustrum")
