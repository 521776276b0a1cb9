"""Ten classes of transformers and two of torchvision, as installed: scanned, optimized, applied, checked, scanned
again, undone.

Only one schedule of each class is tried and verified in full. bench/real_classes.py measures the results of longer
searches.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest

from kernel_assistant.apply import apply_outside
from kernel_assistant.environment.builds.compile import Binary
from kernel_assistant.environment.session import open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.prepare import prepare_scanned
from kernel_assistant.targets.detect import detect

pytestmark = [pytest.mark.timed, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "data" / "programs" / "real_models.py"
#: Library → models, classes (`#2`: another size beside the first), classes with instances that nothing is done for.
CASES = {
    "transformers": (
        "llama,gemma2,t5,bert,gpt2,cohere,convnextv2,scaler",
        (
            *("LlamaRMSNorm", "LlamaRotaryEmbedding", "Gemma2RMSNorm", "T5LayerNorm", "BertEmbeddings"),
            *("NewGELUActivation", "CohereLayerNorm", "ConvNextV2GRN", "ConvNextV2GRN#2", "ConvNextV2LayerNorm"),
            "TimeSeriesStdScaler",
        ),
        {"ConvNextV2LayerNorm"},
    ),
    "torchvision": (
        "convnext,detection",
        ("LayerNorm2d", "FrozenBatchNorm2d", "FrozenBatchNorm2d#2"),
        {"LayerNorm2d", "FrozenBatchNorm2d"},
    ),
}
MAIN = """
import json
import sys

import real_models

if __name__ == "__main__":
    real_models.main()
    for name, module in list(sys.modules.items()):
        if name.startswith("kernels_for_"):
            print(json.dumps(module.counters()))
"""


@pytest.mark.parametrize("library", CASES)
def test_classes_of_a_library_from_scan_to_the_faster_program(library, home, settings, write, run, tmp_path):
    pytest.importorskip(library)
    models, sizes, partly = CASES[library]
    classes = {name for name in sizes if "#" not in name}
    shutil.copyfile(PROGRAM, home / PROGRAM.name)
    write("main.py", MAIN)
    untouched = (home / PROGRAM.name).read_bytes()
    program = ("--", sys.executable, "main.py", "--models", models)

    first = run("scan", "--json", "--top", "100", "--keep", "100", *program)
    assert first.returncode == 0, first.stderr
    seen = {row["name"]: row for row in json.loads(first.stdout)["classes"]}
    assert seen.keys() >= classes and all(seen[name]["installed"] for name in classes)

    optimized(sizes, settings, home, tmp_path / "results")

    second = run("scan", "--json", "--against", "1", "--top", "100", *program)
    assert second.returncode == 0, second.stderr
    assert results(second.stderr) == pytest.approx(results(first.stderr), rel=1e-4)
    assert len(results(first.stderr)) == len(models.split(","))
    counters = json.loads(next(line for line in second.stderr.splitlines() if line.startswith("{")))
    assert {name for name, found in counters.items() if found["kernel"]} == classes, counters
    # Kernels are verified for weights of one size; instances of sizes that nothing was done for run the original.
    left = {name: found["fallbacks"] for name, found in counters.items() if found["fallbacks"]}
    assert left.keys() == partly, left
    comparison = json.loads(second.stdout)["comparison"]
    sys.stdout.write(f"whole program: {comparison['speedup']:.2f} times as fast\n")
    assert {change["name"] for change in comparison["classes"]} >= classes

    checked = run("check", "--no-timing", "--json", f"kernels_for_{library}")
    verdicts = [(one["class_name"], one["status"]) for one in json.loads(checked.stdout)["classes"]]
    assert sorted(verdicts) == sorted((name.partition("#")[0], "ok") for name in sizes), checked.stdout

    assert run("undo", f"kernels_for_{library}").returncode == 0
    assert (home / PROGRAM.name).read_bytes() == untouched
    assert not (home / f"kernels_for_{library}").exists()


def optimized(sizes, settings, project, folder):
    """Verifies the first schedule of each class and applies it to the program."""
    worker, device = WorkerClient(sys.executable), detect("cpu")
    try:
        for name in sizes:
            task, _ = prepare_scanned(f"last:{name}", settings)
            how = {"sandbox_mode": "auto", "cache_dir": settings.cache_dir, "cancel": threading.Event()}
            with open_environment(task, device=device, worker=worker, emit=lambda event: None, **how) as environment:
                candidate = emit(environment.graph, initial(environment.graph, "cpu", device)[0])
                built = environment.build(candidate)
                assert isinstance(built, Binary), (name, built)
                evaluation = environment.judge_binary(candidate, built, profile=False)
                assert evaluation.correct, (name, evaluation.message)
                opened = {"graph": environment.graph, "device": environment.device, "facts": environment.facts}
                judged = {"candidate": candidate, "evaluation": evaluation, "trajectory": None}
                binaries = environment.binaries(candidate)
                write_result(folder / name, task=task, binaries=binaries, **opened, **judged)
            apply_outside(folder / name, Path(task.path), project, into=project / PROGRAM.name)
    finally:
        worker.close()


def results(printed):
    """A map from each model to the line that the program prints about its result."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\d\S*)$", printed, re.MULTILINE)}
