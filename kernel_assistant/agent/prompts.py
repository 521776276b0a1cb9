"""The prompts at the start of a conversation, for both profiles. Pure, except that SKILL.md is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kernel_assistant.agent.directives import UNITS, output_names
from kernel_assistant.agent.tools.base import shortened
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import KernelTask, OpGraph
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.serving.template import write_call

SKILL = Path(__file__).resolve().parent.parent / "skills" / "SKILL.md"
#: Most characters of the module, and of the graph, in the prompt; reference/ has all of them.
MOST = 24_000
LANGUAGE = {"cuda": "CUDA kernels", "cpu": "C++ kernels (OpenMP and SIMD; one thread pool, no threads of their own)"}
SIGNATURE = {
    "cuda": 'extern "C" __global__ void rms(const __grid_constant__ rms_args a)   // a.x, a.out, a.rows',
    "cpu": 'extern "C" void rms(const rms_args* a)   // a->x, a->out, a->rows',
}
GEOMETRY = {"cuda": " grid=B block=BLOCK shared=0", "cpu": ""}

FULL = """You make one PyTorch module faster with {language} that you write. Only what is measured counts: a candidate
is compiled, run on several inputs and sizes against a float64 reference, and timed beside eager PyTorch and
torch.compile. The fastest verified candidate of the whole work is the result, so try things, and keep what works in
mind, not in files. Work by calling tools; text alone does nothing.

The candidate is what lies at the top of your workspace: {unit} files and headers. reference/ has the module, its graph,
and in include/ vetted headers, which a source includes by their name from there ("ka/rows.h"). Comments at the head of
a source say what is launched; inputs, outputs, types and sizes are the graph's:

    // launch: rms(x=x0, w=p0, out=out0, rows=B){geometry}
    // scratch: sums f32[B, 4]          memory that lives for one call; more: name dtype[sizes]; name dtype[sizes]
    // set: BLOCK=256 VEC=4             constants of the source and of the lines above
    #include "plan.h"                   the argument structs, made from the launch lines
    {signature}

Launches run in order, one after another. A launch's fields are buffers (pointers) or integer expressions over the
graph's dimensions with + - * // % cdiv min max (int64_t). `// packed: w2 f32[512, 256]` with `// prepare: SYMBOL(...)`
computes something from parameters once. `// call: n3(x0, p0, n3=tmp)` leaves node n3 of the graph to PyTorch, with the
buffers of what it reads and gives; a kernel of yours has to remain. Sizes that are dimensions of the graph differ
between inputs; literal ones never do. Outputs must be written in full. There is no host code, no allocation, no header
but the language's own and those given to you. Accumulate in float32 or wider and round once. The judge names what is
wrong, and where.
"""

COMPACT = (
    "Write {language} for the graph. Answer: one fenced source that begins with // parts:, // schedule: and // launch: "
    "lines, or a line plan: SCHEDULE, for which it is written. At the end: {call}"
)


def full_system(target: str, guidance: str, *, short: bool = False) -> str:
    """Returns the system message of the full profile: the rules, SKILL.md and the project's guidance. With `short`, a
    line with the path of SKILL.md replaces its text."""
    rules = FULL.format(
        language=LANGUAGE[target],
        unit="*" + UNITS[target][0],
        geometry=GEOMETRY[target],
        signature=SIGNATURE[target],
    )
    parts = [rules, f"An expert's advice is in reference/{SKILL.name}." if short else skill_text()]
    if guidance:
        parts.append(
            "The project asks for this. It is advice of the repository: it can narrow what you do, and changes neither "
            f"the rules nor what is judged.\n\n{guidance}"
        )
    return "\n\n".join(part.strip() for part in parts if part)


def full_task(task: KernelTask, view: EpisodeView) -> str:
    names = ", ".join(output_names(view.graph))
    about = f"Graph (base sizes {_sizes(view.graph)}; in launch lines the results are called {names}):"
    return "\n\n".join(
        [
            f"Module {task.class_name}, numerics {task.numerics.value}, on {_device(view)}.",
            f"```python\n{shortened(task.content.strip(), MOST)}\n```",
            f"{about}\n```\n{shortened(view.graph.text().strip(), MOST)}\n```",
            _baseline(view),
        ]
    )


def compact_system(target: str) -> str:
    """Returns the system message of the compact profile."""
    return COMPACT.format(language={"cuda": "CUDA", "cpu": "C++"}[target], call=write_call("finish", "{}"))


def compact_task(task: Canonical, dims: Mapping[str, int], arch: str) -> str:
    """Returns the task for the compact profile: the text of the graph, then one line. The line has the free dimensions
    with their base sizes, named sizes and constants, architecture, and dtype of the output. It has no times, so that
    the model can answer before PyTorch is timed; they are in the judge's reports."""
    bindings = {**dims, **task.sizes, **task.constants}
    words = [f"{name}={value!r}" for name, value in bindings.items()]
    return task.text() + " ".join([*words, arch, task.graph.spec(task.graph.outputs[0]).dtype])


@cache
def skill_text() -> str:
    """Returns the text of SKILL.md, which is advice for writing fast kernels."""
    return SKILL.read_text(encoding="utf-8")


def _device(view: EpisodeView) -> str:
    device = view.device
    words = [f"{device.name} ({device.arch})", f"{device.cores} {'SMs' if device.target == 'cuda' else 'cores'}"]
    words += [f"{device.cache_bytes >> 20} MiB of last-level cache"] if device.cache_bytes else []
    words += [f"copies {device.copy_bandwidth / 1e9:.0f} GB/s"] if device.copy_bandwidth else []
    return ", ".join(words)


def _sizes(graph: OpGraph) -> str:
    return " ".join(f"{name}={size}" for name, size in graph.dims.items()) or "none"


def _baseline(view: EpisodeView) -> str:
    baseline = view.baseline
    words = [f"eager {baseline.eager_ms:.4g} ms"]
    words += [f"compile {baseline.compile_ms:.4g} ms"] if baseline.compile_ms else []
    words += [f"floor {baseline.floor_ms:.4g} ms"] if baseline.floor_ms else []
    return " ".join(words)
