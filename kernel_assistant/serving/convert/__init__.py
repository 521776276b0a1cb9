"""Converts a model between a Hugging Face folder and an 8-bit GGUF file. Llama architecture, byte-level BPE.

Needs numpy, gguf and safetensors, which the rest of kernel_assistant does not import: start it as
`python -m kernel_assistant.serving.convert` (training may import it).
"""
