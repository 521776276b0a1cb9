"""What the stages are asked about their model on the command line: docs/training_base.md."""

from __future__ import annotations

import argparse
import shlex

from kernel_assistant.agent.profiles import PROFILES
from kernel_assistant_training.ppo.base import ModelOptions
from kernel_assistant_training.ppo.engine import KINDS, EngineOptions


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters; 0: all weights")
    parser.add_argument(
        "--checkpointing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep only the inputs of layers for the backward pass (by itself from 1 B parameters on)",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="compact", help="prompts and tools")
    parser.add_argument("--engine", choices=KINDS, default="auto", help="what generates")
    parser.add_argument("--vllm-arguments", default="", metavar="WORDS", help="for its server, as in one shell word")
    parser.add_argument("--vllm-share", type=float, default=None, help="of the GPU's memory, while it generates")


def model_of(found: argparse.Namespace) -> ModelOptions:
    return ModelOptions(found.lora, found.checkpointing)


def engine_of(found: argparse.Namespace) -> EngineOptions:
    return EngineOptions(found.engine, tuple(shlex.split(found.vllm_arguments)), found.vllm_share)
