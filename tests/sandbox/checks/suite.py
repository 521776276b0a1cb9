"""One suite of checks that every backend must pass."""

from __future__ import annotations

import subprocess

from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.contract import Sandbox
from tests.sandbox.checks import bounds, files, processes
from tests.sandbox.checks.bench import Check, ProbeFolders, ProbeResult

CHECKS: tuple[Check, ...] = (
    *(files.hidden, files.protected, files.metadata, files.temporary, files.odd_names, files.largest_file),
    *(processes.network, processes.environment, processes.descriptors, processes.others, processes.kernel),
    *(bounds.memory, bounds.processes, bounds.survivors, bounds.time_limit, bounds.compilers),
)


class CheckResult(Record, frozen=True, kw_only=True):
    """One property: whether it `held`, and whether the backend claims it. `held` is None if it was not tested."""

    name: str
    held: bool | None
    expected: bool
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the claim is right, in both directions: a property in `lacks` must really be missing."""
        return self.held is None or self.held == self.expected


def run_checks(sandbox: Sandbox, checks: tuple[Check, ...] = CHECKS) -> list[CheckResult]:
    """Tests every property of `contract.PROPERTIES`. Takes about ten seconds and leaves nothing behind."""
    results: list[CheckResult] = []
    with ProbeFolders(sandbox) as bench:
        for check in checks:
            results += [_judge(sandbox, finding) for finding in _findings(check, bench)]
    return results


def _findings(check: Check, bench: ProbeFolders) -> list[ProbeResult]:
    """Runs one check. A probe that dies or hangs is a result under the check's name."""
    results: list[ProbeResult] = []
    try:
        for finding in check(bench):
            results.append(finding)  # noqa: PERF402  results before a failure are kept
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        results.append(ProbeResult(check.__name__, False, str(error)))
    return results


def _judge(sandbox: Sandbox, finding: ProbeResult) -> CheckResult:
    expected = finding.name not in sandbox.lacks
    return CheckResult(name=finding.name, held=finding.held, expected=expected, detail=finding.detail)
