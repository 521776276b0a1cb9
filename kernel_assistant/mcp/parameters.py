"""The parameters of each tool. They are checked before anything is done, and the schemas that agents see are made
from these records.
"""

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
_Number = Annotated[int, msgspec.Meta(ge=1, description="Number of a job.")]
_Job = _Number | Annotated[str, msgspec.Meta(min_length=1, description="Number of a job, or `last`.")]
_JobOrFile = (
    _Number
    | Annotated[str, msgspec.Meta(min_length=1, description="Number of a job, `last`, FILE[:CLASS] or SCAN:CLASS.")]
)
_Wait = Annotated[
    bool,
    msgspec.Meta(description="false: answer at once with the job's number, which `result` takes; the job goes on."),
]
_DryRun = Annotated[bool, msgspec.Meta(description="Change nothing, answer with the diff.")]


class HintsArguments(Record, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(min_length=1, description="A Python file or a folder.")]


class ScanArguments(Record, frozen=True, kw_only=True):
    command: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1, description='The program, e.g. ["python", "train.py", "--steps", "20"].'),
    ]
    folder: Annotated[str, msgspec.Meta(description="Folder to run it in; empty: the server's.")] = ""
    top: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many classes to tell.")] = 10


class DraftArguments(Record, frozen=True, kw_only=True):
    module: _Spec


class ProfileArguments(Record, frozen=True, kw_only=True):
    module: _Spec
    target: _Target = "auto"
    wait: _Wait = True


class VerifyArguments(Record, frozen=True, kw_only=True):
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


class OptimizeArguments(Record, frozen=True, kw_only=True):
    module: _Spec
    target: _Target = "auto"
    budget_seconds: Annotated[float, msgspec.Meta(ge=1, le=86_400, description="Of the whole job.")] = 120.0
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


class ResultArguments(Record, frozen=True, kw_only=True):
    job: _Job
    wait: Annotated[bool, msgspec.Meta(description="Wait for the end of a job that runs.")] = False
    sources: Annotated[bool, msgspec.Meta(description="The best candidate's sources too.")] = False


class JobsArguments(Record, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20


class CancelArguments(Record, frozen=True, kw_only=True):
    job: _Job


class ConfirmArguments(Record, frozen=True, kw_only=True):
    job: _Job
    wait: _Wait = True


class ApplyArguments(Record, frozen=True, kw_only=True):
    what: _JobOrFile
    into: Annotated[
        str,
        msgspec.Meta(
            description="A program that imports the kernels, so that the class's own file stays as it is: for a class "
            "of an installed library. Empty there: the answer has the line to add."
        ),
    ] = ""
    dry_run: _DryRun = False
    force: Annotated[bool, msgspec.Meta(description="Also where no gain was confirmed.")] = False


class UndoArguments(Record, frozen=True, kw_only=True):
    what: _JobOrFile
    dry_run: _DryRun = False


class CheckArguments(Record, frozen=True, kw_only=True):
    path: Annotated[
        str, msgspec.Meta(min_length=1, description="A folder, a file with applied kernels, or their package.")
    ] = "."
    timing: Annotated[bool, msgspec.Meta(description="Time each file against the one without kernels, too.")] = True
    fail_under: Annotated[
        float | None, msgspec.Meta(description="A file below so many times its original does not pass.")
    ] = None
    target: _Target = "auto"


class ExportArguments(Record, frozen=True, kw_only=True):
    what: _JobOrFile
    form: Annotated[
        Literal["kernelbench", "cuda-agent", "package"],
        msgspec.Meta(description="A file with ModelNew, a CUDA-Agent workdir, or a Python package that pip installs."),
    ]
    folder: Annotated[str, msgspec.Meta(min_length=1, description="A new folder.")]


def takes(kind: type[Record]) -> str:
    """The names of the parameters that a tool accepts, as text; required ones come first."""
    fields = sorted(msgspec.structs.fields(kind), key=lambda field: not field.required)
    return ", ".join(f"{field.name} (required)" if field.required else field.name for field in fields)


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """JSON Schema of the record `kind`, without references: some clients do not follow them."""
    whole = msgspec.json.schema(kind)
    schema = dict(whole["$defs"][kind.__name__])
    schema.pop("title", None)
    return schema
