"""Fixtures for small models."""

from tests.ppo.conftest import on_one_thread  # noqa: F401 - a fixture for every test here
