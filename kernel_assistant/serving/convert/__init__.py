"""A model as a Hugging Face folder and as an 8-bit GGUF, each from the other. Llama architecture, byte-level BPE.

Needs numpy, gguf and safetensors, which the rest of kernel_assistant does not load: start it as
`python -m kernel_assistant.serving.convert` (training may import it).
"""
