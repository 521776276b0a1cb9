"""Serving a language model: engines in processes of their own, the registry, the embedded client, one chat template.

No model ships with this version; `endpoint.endpoint_for` says so where one is asked for.
"""
