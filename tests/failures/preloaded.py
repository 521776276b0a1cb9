"""The modules that are loaded in the process from which stages are forked."""

import torch  # noqa: F401
import transformers.models.llama.modeling_llama
import transformers.models.qwen2.tokenization_qwen2
import transformers.trainer  # noqa: F401

import kernel_assistant_training.ppo.stage
import kernel_assistant_training.stages.fine_tuning
import kernel_assistant_training.stages.pretrain  # noqa: F401
