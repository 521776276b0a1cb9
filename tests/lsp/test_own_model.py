"""A job of the language server whose kernel a model behind an endpoint writes; VS Code has it in each form."""

from __future__ import annotations

import pytest

from tests.agent.forms import ENDINGS, FORMS, KERNEL, MODULE
from tests.policy.endpoint import served

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timed]  # an offer needs a verdict


async def test_the_kernel_of_a_model_is_verified_and_offered(start_editor, workspace, monkeypatch):
    form = "Qwen3-Coder"
    path = workspace / "chain.py"
    path.write_text(MODULE)
    with served() as endpoint:
        endpoint.answers += FORMS[form]
        monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "model")
        monkeypatch.setenv("KERNEL_ASSISTANT_ENDPOINT", endpoint.url)
        monkeypatch.setenv("KERNEL_ASSISTANT_BUDGET", "60s")
        monkeypatch.setenv("KERNEL_ASSISTANT_FREE_WINS", "false")
        editor = await start_editor(shows=path)
        job = await editor.optimize(path, "Chain")
        end = await editor.until_job(job, "finished", "failed")
        requests = len(endpoint.bodies)
    assert end["offer"] in ("recommended", "possible") and end["best"]["confirmed"], end
    assert end["spent"].startswith(f"{requests} requests, {120 * requests} tokens in, ")

    await editor.until_lens(path, "verified")
    report = await editor.command("show", path, "Chain")
    assert report["result"]["stop_reason"] == ENDINGS[form] and report["spent"] == end["spent"]
    assert report["evaluation"]["outcome"] == "correct" and KERNEL in report["sources"].values(), report["sources"]
