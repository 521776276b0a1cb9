"""A user's session whose kernels a model behind an endpoint writes in a fenced block."""

from __future__ import annotations

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from tests.agent.forms import ENDINGS, FORMS, MODULE
from tests.policy.endpoint import served
from tests.tui.driving import opened, until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timed]  # an offer needs a verdict


@pytest.fixture(scope="module")
def project(shared_home):
    folder = shared_home / "project"
    folder.mkdir()
    return folder


async def test_the_kernel_of_a_model_is_verified_and_offered(project):
    form = "fenced block"
    path = project / "chain.py"
    path.write_text(MODULE)
    with served() as endpoint:
        endpoint.answers += FORMS[form]
        flags = {"policy": "model", "endpoint": endpoint.url, "turns": 9}
        async with opened(project, (150, 45), **flags) as pilot:
            await until(pilot, "Chain")
            await pilot.press("s")
            ended = await until(pilot, "ended:")
            requests = len(endpoint.bodies)
            assert f"· {requests} requests, {120 * requests}" in ended and "confirmed" in ended
            job = max(Client(resolve()[0]).jobs(), key=lambda row: int(row.id))
            assert job.result.stop_reason == ENDINGS[form] and job.result.applicable

            await pilot.press("3", "l")
            await until(pilot, "v = v * 1.25f - 0.5f;")
            await pilot.press("a")
            await until(pilot, f"Apply job {job.id}", "+")
            await pilot.press("a")
            await until(pilot, "is served by chain_kernels/")
    assert path.read_text() != MODULE
