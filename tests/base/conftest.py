"""What small models need of a test."""

from tests.ppo.conftest import one_thread  # noqa: F401 - a fixture for every test here
