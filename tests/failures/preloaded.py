"""What the process that stages are forked from has loaded."""

import torch  # noqa: F401
import transformers.models.llama.modeling_llama
import transformers.models.qwen2.tokenization_qwen2
import transformers.trainer  # noqa: F401

import kernel_assistant_training.fine_tuning
import kernel_assistant_training.ppo.stage
import kernel_assistant_training.pretrain  # noqa: F401
