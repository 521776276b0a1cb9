"""Options of hosts, and what they answer."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import of_graph
from kernel_assistant_training.ppo.pool.pool import EvaluationRequest
from tests.common.caches import IMPOSSIBLE

#: Bandwidths are given: on a busy machine they cannot be measured.
OPTIONS = WorkerOptions("cpu", "", Path(), Path(), builders=2, bandwidths=(IMPOSSIBLE, IMPOSSIBLE))
#: The outcomes of each of the `jobs`.
RIGHT = ["correct", "compile_error"]


def requests(subject, *openings):
    """A request for the subject's right answer, and one for each text with which its kernel begins in another one."""
    task, source = of_graph(subject.graph, "cpu"), subject.answers[0].source
    texts = (source, *(source.replace("{\n", f"{{\n  {opening}\n", 1) for opening in openings))
    candidates = (candidate_from({"kernel.cpp": text}, task.graph, "cpu", task.canonical) for text in texts)
    return [EvaluationRequest(task, candidate) for candidate in candidates]


def outcomes(job):
    return [one.outcome.value if one else None for one in job.evaluations]


def listening(connect, heard):
    """A connection to the same host; `heard` is called with the host and each answer before the group gets it."""

    def connected(options):
        host = connect(options)
        judge = host.judge

        def both(number, job):
            for answer in judge(number, job):
                heard(host, answer)
                yield answer

        host.judge = both
        return host

    return connected
