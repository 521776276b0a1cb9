"""One suite that every backend must pass: in the tests, and in `doctor` on the user's machine."""

from __future__ import annotations

import subprocess

from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.checks import bounds, files, processes
from kernel_assistant.sandbox.checks.bench import Bench, Check, Finding
from kernel_assistant.sandbox.contract import Sandbox

CHECKS: tuple[Check, ...] = (
    files.hidden,
    files.protected,
    files.metadata,
    files.temporary,
    files.odd_names,
    files.largest_file,
    processes.network,
    processes.environment,
    processes.descriptors,
    processes.others,
    processes.kernel,
    bounds.memory,
    bounds.processes,
    bounds.survivors,
    bounds.time_limit,
    bounds.compilers,
)


class CheckResult(Record, frozen=True, kw_only=True):
    """One property: whether it `held`, and whether the backend says it does. `held` is None where nothing was tried."""

    name: str
    held: bool | None
    expected: bool
    detail: str = ""

    @property
    def ok(self) -> bool:
        """The backend keeps its word in both directions: what it lacks must really be lacking."""
        return self.held is None or self.held == self.expected


def run_checks(sandbox: Sandbox, checks: tuple[Check, ...] = CHECKS) -> list[CheckResult]:
    """Try every property of `contract.PROPERTIES` for real. Takes about ten seconds; changes nothing that stays."""
    results: list[CheckResult] = []
    with Bench(sandbox) as bench:
        for check in checks:
            results += [_judge(sandbox, finding) for finding in _findings(check, bench)]
    return results


def _findings(check: Check, bench: Bench) -> list[Finding]:
    """A probe that dies or hangs is a finding under the check's own name."""
    found: list[Finding] = []
    try:
        for finding in check(bench):
            found.append(finding)  # noqa: PERF402  what was found before a failure is kept
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        found.append(Finding(check.__name__, False, str(error)))
    return found


def _judge(sandbox: Sandbox, finding: Finding) -> CheckResult:
    expected = finding.name not in sandbox.lacks
    return CheckResult(name=finding.name, held=finding.held, expected=expected, detail=finding.detail)
