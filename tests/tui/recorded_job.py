"""A job that ran on two CPU cores: eight conversations of the shipped model, then the generator. It is kept in
recorded/.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kernel_assistant.events import JobFinished, decode_event
from kernel_assistant.records import Step, decode
from kernel_assistant.session.hosting.event_log import log_path
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store

RECORDED = Path(__file__).parent / "recorded"
EXAMPLE = Path(__file__).parents[2] / "examples" / "gated_rms_norm.py"


def add_recorded(settings, project):
    """Adds the job to `project` and copies its class there; returns its number."""
    path = Path(shutil.copy(EXAMPLE, project))
    store = Store(settings.state_dir)
    job = store.add_job(build_task(str(path), target="cpu", numerics="kernelbench"), JobOptions(), "cpu:0").id
    store.mark_running(job)
    log = log_path(settings.jobs_dir, job)
    result = log.parent / "result"
    result.mkdir(parents=True)
    for name in ("plan.json", "evaluation.json", "applied.json"):
        shutil.copy(RECORDED / name, result)
    text = (RECORDED / "events.jsonl").read_text().replace("@RESULT@", str(result)).replace("@JOB@", str(log.parent))
    log.write_text(text)
    for line in (RECORDED / "steps.jsonl").read_text().splitlines():
        store.add_step(job, decode(line, Step))
    end = decode_event(text.splitlines()[-1])
    assert isinstance(end, JobFinished)
    store.mark_ended(job, JobState.done, result=end.result)
    store.close()
    return job
