"""Serves a language model: engines in separate processes, the registry, the embedded client, one chat template.

One model ships with the package (`models/`); `endpoint.endpoint_for` uses it if none is named.
"""
