"""One scripted endpoint for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.policy.endpoint import Endpoint, served


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served() as server:
        yield server
