"""Runs language models: the engines (vLLM, llama.cpp) in separate processes, the registry of models, the small model
that runs in a process of ours, and the chat template.

One model ships with the package (`models/`); `endpoint.endpoint_for` uses it if none is named.
"""
