"""Classes of transformers and torchvision as they are: scanned, optimized, applied, checked, scanned again.

    python -m bench.real_classes --target cuda --out FOLDER [--classes LlamaRMSNorm,T5LayerNorm#2] [--seconds 230]

`CLASS#2` is the configuration of a class that took most time but one: instances of another size. FOLDER gets the
program, its kernels, `rows.jsonl` and the tables `real.md`; installed packages are not touched.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.harness import IsolatedProcess, Row, RowFile, interval, markdown, measure_cases, shown
from bench.jobs import SessionHost, session_host

PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "data" / "programs" / "real_models.py"
#: The ten classes, and the models that contain them. On the CPU only classes without matrix products.
CLASSES = {
    "cuda": "LlamaRMSNorm,LlamaMLP,T5LayerNorm,T5DenseGatedActDense,BertEmbeddings,BertSelfOutput,NewGELUActivation,"
    "LayerNorm2d,CNBlock,FrozenBatchNorm2d",
    "cpu": "LlamaRMSNorm,LlamaRotaryEmbedding,Gemma2RMSNorm,T5LayerNorm,BertEmbeddings,NewGELUActivation,"
    "CohereLayerNorm,ConvNextV2GRN,ConvNextV2LayerNorm,TimeSeriesStdScaler",
}
MODELS = {"cuda": "llama,t5,bert,gpt2,convnext,detection", "cpu": "llama,gemma2,t5,bert,gpt2,cohere,convnextv2,scaler"}
#: The least speed-up over eager for applying a candidate.
LEAST_GAIN = 1.02
#: Seconds of timing for each model, and for building it and its first calls.
PASS_SECONDS, MODEL_SECONDS = 1.5, 200.0
SCANNED = ("id", "device", "torch", "wall_seconds", "calls_seconds")
CLASS_COLUMNS = (
    *("class", "package", "eager", "compile", "ours", "× eager", "× compile", "99.9% interval", "outcome"),
    *("error ratio", "in our kernels", "in the program before → after, ms", "its first calls, ms", "check", "problem"),
)
MODEL_COLUMNS = (
    "model",
    "before, ms",
    "after, ms",
    "gain",
    "over rounds",
    "differs by",
    "calls of kernels",
    "left out",
)


def main() -> int:
    given = _arguments()
    project = given.out / "project"
    project.mkdir(parents=True, exist_ok=True)
    if not (project / PROGRAM.name).exists():
        shutil.copyfile(PROGRAM, project / PROGRAM.name)
    rows = RowFile(given.out / "rows.jsonl")
    classes, models = given.classes.split(","), given.models.split(",")
    with session_host(given.target, given.budget, (given.out / "home").absolute()) as host:
        again = [nullcontext(host)]
        measure_cases([({"scan": "before"}, given)], partial(_scan, project), rows, again)
        cases = [({"class": name}, name) for name in classes]
        measure_cases(cases, partial(_class, project), rows, again, given.seconds)
        passes = partial(_passes, project.absolute(), given.target, given.size, given.dtype)
        measure_cases([({"model": name}, name) for name in models], passes, rows, [IsolatedProcess(MODEL_SECONDS)])
        measure_cases([({"scan": "after"}, given)], partial(_scan, project), rows, again)
        found = measure_cases([({"check": "applied"}, "")], partial(_check, project), rows, again)
    text = page(found)
    (given.out / "real.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _scan(project: Path, given: argparse.Namespace, host: SessionHost) -> Row:
    """Runs the program under the recorder: figures of the whole, and of each class by its name."""
    program = (sys.executable, PROGRAM.name, "--models", given.models, "--device", given.target, "--size", given.size)
    words = ("--json", "--top", "200", "--keep", "200", "--", *program, "--dtype", given.dtype, "--passes", "5")
    done = host.command("scan", *words, cwd=project)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr[-2000:])
    report = json.loads(done.stdout.splitlines()[-1])
    figures = ("module", "calls", "share_seconds", "inclusive_seconds", "first_seconds", "unserved_seconds")
    seen = {row["name"]: {key: row[key] for key in figures} for row in report["classes"]}
    return {key: report[key] for key in SCANNED} | {"classes": seen}


def _class(project: Path, name: str, host: SessionHost) -> Row:
    """The job of a class, which is applied beside the program if it gains over eager, which the program runs."""
    row = host.job("--scan", f"last:{name if '#' in name else f'{name}#1'}", cwd=project)
    if (row.get("speedup_vs_eager") or 0.0) < LEAST_GAIN:
        return row | {"problem": row.get("why") or "not applied: it is not faster than eager, which the program runs"}
    applied = host.command("apply", str(row["job"]), "--into", PROGRAM.name, "--force", "--json", cwd=project)
    return row | ({"problem": applied.stderr.strip()[-300:]} if applied.returncode else {})


def _check(project: Path, _: str, host: SessionHost) -> Row:
    """`check --no-timing` of everything that was applied: status by class."""
    packages = [path.name for path in sorted(project.glob("kernels_for_*"))]
    done = host.command("check", "--no-timing", "--json", *packages, cwd=project) if packages else None
    classes = json.loads(done.stdout)["classes"] if done else []
    return {"classes": {one["class_name"]: one["status"] for one in classes}}


def _passes(project: Path, target: str, size: str, dtype: str, name: str, process: IsolatedProcess) -> Row:
    return process.call(compared, project, target, size, dtype, name)


def compared(project: Path, device: str, size: str, dtype: str, name: str) -> Row:
    """Milliseconds of a forward pass of a model without and with the applied kernels, which alternate in this process,
    their quotient by rounds, and how far the results differ."""
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    packages = [importlib.import_module(path.name) for path in sorted(project.glob("kernels_for_*"))]
    models = importlib.import_module(PROGRAM.stem)
    ((_, model, inputs),) = models.built([name], device, size == "real", getattr(torch, dtype))

    def switch(enabled: bool) -> None:
        for package in packages:
            package.set_enabled(enabled)

    with torch.no_grad():
        results = []
        for enabled in (False, True):
            switch(enabled)
            for _ in range(3):
                result = model(**inputs)
            results.append(models.first_tensor(result).double())
        for package in packages:
            package.reset_counters()
        model(**inputs)
        counted = {key: counts for package in packages for key, counts in package.counters().items()}
        passes = max(1, min(50, int(PASS_SECONDS / 16 / max(_seconds(lambda: model(**inputs), 1), 1e-4))))
        rounds: list[dict[bool, float]] = []
        began = time.perf_counter()
        while len(rounds) < 5 or (len(rounds) < 25 and time.perf_counter() - began < PASS_SECONDS):
            rounds.append({})
            for enabled in (False, True) if len(rounds) % 2 else (True, False):
                switch(enabled)
                rounds[-1][enabled] = _seconds(lambda: model(**inputs), passes)
    ratios = sorted(one[False] / one[True] for one in rounds)

    return {
        "before_ms": median(one[False] for one in rounds) * 1e3,
        "after_ms": median(one[True] for one in rounds) * 1e3,
        "speedup": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "rounds": len(rounds),
        "difference": float((results[0] - results[1]).norm() / results[0].norm()),
        "kernel_calls": {key: counts["kernel"] for key, counts in counted.items() if counts["kernel"]},
        "fallbacks": {key: counts["fallbacks"] for key, counts in counted.items() if counts["fallbacks"]},
    }


def _seconds(call: Callable[[], object], passes: int) -> float:
    """Seconds of one pass, which starts and ends with an idle device."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(passes):
        call()
    wait()
    return (time.perf_counter() - began) / passes


def page(rows: list[Row]) -> str:
    """The tables of classes and of models, and what the scans saw of the whole program."""
    scans = {row["scan"]: row for row in rows if "scan" in row}
    checks = next((row.get("classes", {}) for row in rows if "check" in row), {})
    lines = markdown(CLASS_COLUMNS, (_class_cells(row, scans, checks) for row in rows if "class" in row))
    lines += ["", *markdown(MODEL_COLUMNS, (_model_cells(row) for row in rows if "model" in row)), ""]
    for when, row in scans.items():
        if "device" in row:
            spans = f"{row['wall_seconds']:.2f} s, {row['calls_seconds']:.2f} s from the first call to the last"
            lines.append(f"Program {when}: {spans} ({row['device']}, torch {row['torch']}).")
    return "\n".join(lines) + "\n"


def _class_cells(row: Row, scans: dict[str, Row], checks: dict[str, str]) -> list[str]:
    name = row["class"].partition("#")[0]
    seen: list[dict[str, Any]] = [scans.get(when, {}).get("classes", {}).get(name, {}) for when in ("before", "after")]
    first = [one.get("first_seconds", 0.0) * 1e3 for one in seen]
    later = [one.get("inclusive_seconds", 0.0) * 1e3 - ms for one, ms in zip(seen, first, strict=True)]
    return [
        row["class"],
        seen[0].get("module", "").partition(".")[0],
        *(shown(row.get(f"{what}_ms"), ".4g") for what in ("eager", "compile", "candidate")),
        *(shown(row.get(f"speedup_vs_{what}")) for what in ("eager", "compile")),
        interval(row.get("speedup_vs_compile_ci")),
        row["outcome"],
        shown(row.get("error_ratio")),
        shown(row.get("share_in_our_kernels"), ".0%"),
        f"{later[0]:.1f} → {later[1]:.1f}",
        f"{first[0]:.1f} → {first[1]:.1f}",
        checks.get(name, ""),
        row.get("problem") or row.get("reason", ""),
    ]


def _model_cells(row: Row) -> list[str]:
    if "reason" in row:
        return [row["model"], "", "", row["reason"], "", "", "", ""]
    return [
        row["model"],
        *(f"{row[name]:.3f}" for name in ("before_ms", "after_ms", "speedup")),
        f"{row['lowest']:.3f} – {row['highest']:.3f} ({row['rounds']})",
        f"{row['difference']:.1e}",
        *(", ".join(f"{key} {what}" for key, what in row[name].items()) for name in ("kernel_calls", "fallbacks")),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Classes of installed libraries, from scan to the faster program.")
    parser.add_argument("--target", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=Path("real"), help="folder of everything that is written")
    parser.add_argument("--classes", help="names, most wanted first (default: ten)")
    parser.add_argument("--models", help="those of the program that the classes are in")
    parser.add_argument("--size", choices=["small", "real"], help="default: real on CUDA")
    parser.add_argument("--dtype", help="default: bfloat16 on CUDA, float32 on the CPU")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each class")
    parser.add_argument("--seconds", type=float, default=230.0, help="no class begins after so long")
    given = parser.parse_args()
    given.classes = given.classes or CLASSES[given.target]
    given.models = given.models or MODELS[given.target]
    given.size = given.size or ("real" if given.target == "cuda" else "small")
    given.dtype = given.dtype or ("bfloat16" if given.target == "cuda" else "float32")
    return given


if __name__ == "__main__":
    sys.exit(main())
