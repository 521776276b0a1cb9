"""An editor whose settings name another machine: the job runs there, and its result is offered here."""

from __future__ import annotations

import pytest

from tests.lsp.editor import Editor

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.asyncio]


async def test_a_job_of_the_editor_runs_over_there(sshd, module, two_turns):
    editor = await started(module.parent)
    try:
        editor.open(module)
        await editor.until_lens(module, "Optimize")
        job = (await editor.command("optimize", module, "Net"))["job"]
        assert job == "box:1"
        await editor.until_job(job, "running")
        await editor.kill()
        editor = await started(module.parent)
        editor.open(module)
        end = await editor.until_job(job, "finished", "failed", "cancelled")
        assert end["outcome"] in ("improved", "no_measurable_gain", "inconclusive", "at_limit")
        await editor.until_lens(module, "show")
        report = await editor.command("show", module, "Net")
        assert report["id"] == "1" and report["device"].endswith("of box") and report["sources"]
    finally:
        await editor.close()


async def started(folder):
    editor = Editor()
    editor.client.set_configuration({"host": "box"}, section="kernelAssistant")
    return await editor.start((folder,))
