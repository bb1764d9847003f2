"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# The same examples in every run, and none fails because the machine is busy.
settings.register_profile("steady", deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
settings.load_profile("steady")
