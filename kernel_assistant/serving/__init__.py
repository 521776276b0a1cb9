"""Serves a language model: has the engines in separate processes, the registry of models, the embedded model and the
chat template.

One model ships with the package (`models/`); `endpoint.endpoint_for` uses it if none is named.
"""
