"""Serving a language model: engines in processes of their own, the registry, the embedded client, one chat template.

One model ships with the package (`models/`); `endpoint.endpoint_for` gives that one where none is named.
"""
