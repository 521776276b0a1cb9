"""Every backend passes the suite, the suite checks everything that is promised, and it can fail."""

from __future__ import annotations

import pytest

from kernel_assistant.sandbox import launch
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import PROPERTIES, Sandbox, SandboxCommand, SandboxSpec
from kernel_assistant.sandbox.landlock import Landlock
from tests.sandbox.checks import files, processes
from tests.sandbox.checks.suite import run_checks

NEEDS_A_COMPILER = {"compile_cpp", "compile_cuda"}


def test_every_backend_keeps_its_word(any_sandbox: Sandbox) -> None:
    results = run_checks(any_sandbox)
    assert [result for result in results if not result.ok] == []
    assert {result.name for result in results} | NEEDS_A_COMPILER == set(PROPERTIES)
    assert all(result.held is not None for result in results)


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5])
def test_landlock_holds_as_older_kernels_have_it(abi: int) -> None:
    if launch.landlock_abi() > abi:
        results = run_checks(Landlock(abi), (files.protected, files.metadata, processes.others, processes.network))
        assert [result for result in results if not result.ok] == []


class Boaster:
    """A backend that claims all abilities and isolates as little as `none`."""

    name = "boaster"
    lacks: frozenset[str] = frozenset()
    explanation = ""

    def command(self, spec: SandboxSpec) -> SandboxCommand:
        return choose("none").command(spec)


class Humble(Boaster):
    """A backend that claims to lack the abilities that it has."""

    lacks = frozenset({"names", "file_size"})


def test_the_suite_catches_a_backend_that_promises_too_much() -> None:
    failed = {result.name for result in run_checks(Boaster()) if not result.ok}
    assert failed >= choose("none").lacks - {"thread_limit"}


def test_the_suite_catches_a_backend_that_denies_what_it_has() -> None:
    failed = {result.name for result in run_checks(Humble(), (files.odd_names, files.largest_file)) if not result.ok}
    assert failed == {"names", "file_size"}
