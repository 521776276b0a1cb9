"""The screen: a fast check of a candidate's text, which gives clear messages. It refuses constructs that no kernel
needs.

It does not protect against hostile code. Three other things do: the sandbox limits what code can access; plans have no
host code on CUDA; and the judge decides what is correct and fast.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.records import Candidate, Diagnostic, OpGraph

MAX_SOURCE_BYTES = 1 << 20

ALLOWED_HEADERS = frozenset(
    """plan.h stdint.h stddef.h math.h string.h float.h limits.h cmath cstdint cstddef cstring cfloat climits limits
    algorithm utility type_traits emmintrin.h immintrin.h x86intrin.h arm_neon.h omp.h
    cuda_runtime.h cuda_fp16.h cuda_bf16.h cuda_fp8.h mma.h cooperative_groups.h cooperative_groups/reduce.h
    cooperative_groups/memcpy_async.h cuda/pipeline cuda/barrier cuda/std/limits cuda/std/cstdint
    cuda/std/type_traits vector_types.h vector_functions.h""".split()
)

FORBIDDEN = (
    (r"#\s*include_next|#\s*import|__has_include|\.incbin|#\s*embed", "reading other files while compiling"),
    (r"__attribute__\s*\(\(\s*(?:\w+\s*,\s*)*(?:__)?(?:constructor|destructor|ifunc)", "code that runs at load time"),
    (r"\b(?:dlopen|dlsym|dlmopen|system|popen|fork|vfork|execve?|execvp?|posix_spawn|clone3?)\s*\(", "process calls"),
    (r"\b(?:pthread_create|std::thread|std::jthread|std::async|thrd_create)\b", "threads of its own (OpenMP is fine)"),
    (r"\b(?:open|openat|fopen|mmap|mprotect|socket|ptrace|syscall|process_vm_\w+|memfd_create)\s*\(", "system calls"),
    (r"\b(?:clock_gettime|gettimeofday|getenv|setenv|signal|sigaction|setjmp|longjmp|atexit)\s*\(", "process state"),
    (r"(?:\bsyscall\b|\bint\s+\$?0x80|\bsysenter\b)\s*[\";\\]", "system calls in assembly"),
    (r"\bclock64\b|%globaltimer|\b__globaltimer\b|\b%clock", "clocks inside a kernel"),
    (
        r"\b(?:cudaMalloc|cudaMemcpy|cudaStream|cudaEvent|cudaLaunch|cuLaunch|cudaDeviceSet|cudaGraph)\w*",
        "the CUDA host API",
    ),
    (r"<<<", "launches from source: launches belong in the plan"),
)


def screen(candidate: Candidate, graph: OpGraph) -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for everything that is not allowed in this candidate; () if it may be compiled."""
    diagnostics = list(_plan_problems(candidate, graph))
    for name, text in candidate.sources.items():
        diagnostics += _source_problems(name, text, frozenset(candidate.sources))
    return tuple(diagnostics)


def _plan_problems(candidate: Candidate, graph: OpGraph) -> list[Diagnostic]:
    plan = candidate.plan
    problems: list[str] = []
    known = {value.name: value.spec for value in graph.inputs}
    for spec in plan.inputs:
        if spec.name not in known:
            problems.append(f"plan input {spec.name} is not an input of the graph")
        elif known[spec.name].dtype != spec.dtype:
            problems.append(f"plan input {spec.name} is {spec.dtype}, the graph has {known[spec.name].dtype}")
    if len(plan.outputs) != len(graph.outputs):
        problems.append(f"the plan has {len(plan.outputs)} outputs, the module {len(graph.outputs)}")
    else:
        for spec, name in zip(plan.outputs, graph.outputs, strict=True):
            if graph.spec(name).dtype != spec.dtype:
                problems.append(f"plan output {spec.name} is {spec.dtype}, the module returns {graph.spec(name).dtype}")
    if set(plan.dims) - set(graph.dims):
        problems.append(f"unknown dimensions {sorted(set(plan.dims) - set(graph.dims))}")
    return [Diagnostic(message=problem, file="plan.json") for problem in problems]


@lru_cache(maxsize=64)
def _source_problems(name: str, text: str, own: frozenset[str]) -> tuple[Diagnostic, ...]:
    """Returns the problems of one source file. Results are cached, because most of the text is in headers that many
    candidates have in common."""
    if len(text.encode()) > MAX_SOURCE_BYTES:
        return (Diagnostic(message=f"larger than {MAX_SOURCE_BYTES >> 20} MiB", file=name),)
    diagnostics: list[Diagnostic] = []
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    if "??/" in joined:
        diagnostics.append(Diagnostic(message="trigraphs are not allowed", file=name))
    number = 0
    for line in joined.splitlines():
        # Lines are counted as compilers count them.
        number = 0 if line == "#line 1" else number + 1
        include = re.match(r"\s*(?:#|%:)\s*include\s*(.*)", line)
        if include:
            header = re.match(r"[<\"]([^>\"]+)[>\"]", include[1].strip())
            if header is None or header[1] not in {*ALLOWED_HEADERS, *shipped(), *own}:
                diagnostics.append(
                    Diagnostic(message=f"include {include[1].strip()} is not allowed", file=name, line=number)
                )
        if line.lstrip().startswith("//") and "*/" not in line:
            continue
        diagnostics += [
            Diagnostic(message=f"not allowed: {reason}", file=name, line=number)
            for pattern, reason in FORBIDDEN
            if re.search(pattern, line)
        ]
    return tuple(diagnostics)
