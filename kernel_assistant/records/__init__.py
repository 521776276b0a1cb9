"""Records: frozen, validated structs that convert to JSON and back. The modules of this folder import, besides each
other, only `errors` of this project."""

from __future__ import annotations

from kernel_assistant.records.candidate import BufferSpec, Candidate, Launch, Plan
from kernel_assistant.records.codec import decode, encode, to_builtins
from kernel_assistant.records.evaluation import (
    Accuracy,
    Baseline,
    Diagnostic,
    Evaluation,
    Gain,
    KernelResources,
    LaunchTime,
    Mismatch,
    Outcome,
    Stage,
    Tier,
    Timing,
)
from kernel_assistant.records.free_win import FreeWin
from kernel_assistant.records.graph import Node, OpGraph, TensorSpec
from kernel_assistant.records.obstacle import Obstacle
from kernel_assistant.records.offer import Offer, ProgramMode
from kernel_assistant.records.result import Best, JobOutcome, OptimizeResult
from kernel_assistant.records.spending import Price, Spending
from kernel_assistant.records.task import InputSource, KernelTask, Numerics, Workload
from kernel_assistant.records.trajectory import Step, StopReason, Trajectory

__all__ = [
    "Accuracy",
    "Baseline",
    "Best",
    "BufferSpec",
    "Candidate",
    "Diagnostic",
    "Evaluation",
    "FreeWin",
    "Gain",
    "InputSource",
    "JobOutcome",
    "KernelResources",
    "KernelTask",
    "Launch",
    "LaunchTime",
    "Mismatch",
    "Node",
    "Numerics",
    "Obstacle",
    "Offer",
    "OpGraph",
    "OptimizeResult",
    "Outcome",
    "Plan",
    "Price",
    "ProgramMode",
    "Spending",
    "Stage",
    "Step",
    "StopReason",
    "TensorSpec",
    "Tier",
    "Timing",
    "Trajectory",
    "Workload",
    "decode",
    "encode",
    "to_builtins",
]
