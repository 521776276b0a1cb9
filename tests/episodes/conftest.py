"""One worker and one open environment, whose compiler builds ahead and which counts its measurements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.records import Tier
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect
from kernel_assistant.worker.device_lock import FOREVER, Check, DeviceLock, no_check
from kernel_assistant_training.evaluation.ahead import AheadCompiler
from kernel_assistant_training.evaluation.evaluation_cache import EvaluationCache
from tests.common.caches import known_cpu
from tests.common.tasks import unattended
from tests.episodes import written
from tests.judge import kernels


@dataclass
class Opened:
    environment: Environment
    judged: EvaluationCache
    compiler: AheadCompiler
    measured: list[str]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    # Nothing is built there yet, which a test looks at.
    cache, cancel, measured = tmp_path_factory.mktemp("cache"), threading.Event(), []
    known_cpu(cache)

    class Counting(DeviceLock):
        @contextmanager
        def exclusive(self, check: Check = no_check, *, patience: float = FOREVER) -> Iterator[None]:
            measured.append("in")
            with super().exclusive(check, patience=patience):
                yield
            measured.append("out")

    worker = kernels.new_worker(cache / "worker.log")
    compiler = AheadCompiler(detect("cpu"), choose("auto"), cache, cancel, threads=1)
    shared = {"device": detect("cpu"), "worker": worker, "cache_dir": cache, "compiler": compiler}
    own = {"cancel": cancel, "lock": Counting(cache / "lock"), "most": Tier.quick}
    with open_environment(written.task(), **shared, **(unattended() | own)) as environment:
        yield Opened(environment, EvaluationCache(environment), compiler, measured)
    compiler.close()
    worker.close()
