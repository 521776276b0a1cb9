"""What each tool takes, checked before anything is done: the schemas that agents see are made from these records."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from kernel_assistant.records.codec import Record

_Spec = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description="FILE or FILE:CLASS, e.g. /project/model.py:Attention. Relative to the server's folder.",
    ),
]
_Target = Annotated[Literal["auto", "cpu", "cuda"], msgspec.Meta(description="auto: a GPU where there is one.")]
_Job = Annotated[str, msgspec.Meta(min_length=1, description="Number of a job, or `last`.")]
_Place = Annotated[str, msgspec.Meta(min_length=1, description="Number of a job, `last`, or FILE[:CLASS].")]
_Wait = Annotated[
    bool,
    msgspec.Meta(description="false: answer at once with the job's number, which `result` takes; the job goes on."),
]
_DryRun = Annotated[bool, msgspec.Meta(description="Change nothing, answer with the diff.")]


class Hints(Record, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(min_length=1, description="A Python file or a folder.")]


class Scan(Record, frozen=True, kw_only=True):
    command: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1, description='The program, e.g. ["python", "train.py", "--steps", "20"].'),
    ]
    folder: Annotated[str, msgspec.Meta(description="Folder to run it in; empty: the server's.")] = ""
    top: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many classes to tell.")] = 10


class Profile(Record, frozen=True, kw_only=True):
    module: _Spec
    target: _Target = "auto"
    wait: _Wait = True


class Verify(Record, frozen=True, kw_only=True):
    candidate: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="A workspace (a folder with plan.json), a file with ModelNew, or a CUDA-Agent workdir.",
        ),
    ]
    reference: Annotated[str, msgspec.Meta(description="FILE[:CLASS] it must equal; empty: what came with it.")] = ""
    timing: Annotated[bool, msgspec.Meta(description="Also time it against eager and torch.compile.")] = True
    target: _Target = "auto"
    wait: _Wait = True


class Optimize(Record, frozen=True, kw_only=True):
    module: _Spec
    target: _Target = "auto"
    budget_seconds: Annotated[
        float, msgspec.Meta(ge=1, le=86_400, description="Of the search; confirming adds at most that and ten seconds.")
    ] = 120.0
    policy: Annotated[
        Literal["auto", "generator", "model"],
        msgspec.Meta(description="Who writes kernels: the built-in generator, a language model, or both."),
    ] = "auto"
    numerics: Annotated[
        Literal["kernelbench", "strict", "paper"], msgspec.Meta(description="How far from float64 a result may be.")
    ] = "kernelbench"
    inputs: Annotated[
        Literal["auto", "declared", "recorded"], msgspec.Meta(description="Inputs of the file, or kept by a scan.")
    ] = "auto"
    wait: _Wait = True


class Result(Record, frozen=True, kw_only=True):
    job: _Job
    wait: Annotated[bool, msgspec.Meta(description="Wait for the end of a job that runs.")] = False
    sources: Annotated[bool, msgspec.Meta(description="The best candidate's sources too.")] = False


class Jobs(Record, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20


class Cancel(Record, frozen=True, kw_only=True):
    job: _Job


class Apply(Record, frozen=True, kw_only=True):
    what: _Place
    dry_run: _DryRun = False
    force: Annotated[bool, msgspec.Meta(description="Also where no gain was confirmed.")] = False


class Undo(Record, frozen=True, kw_only=True):
    what: _Place
    dry_run: _DryRun = False


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """JSON Schema of an object, without references: some clients do not follow them."""
    whole = msgspec.json.schema(kind)
    found = dict(whole["$defs"][kind.__name__])
    found.pop("title", None)
    return found
