"""Tests how a client is made from a URL or a registered name."""

from __future__ import annotations

import gguf
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.policy.connect import connect
from kernel_assistant.serving import registry
from kernel_assistant.serving.errors import NoModelError


@pytest.fixture
def settings(tmp_path, registered, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_API_KEY", "secret")
    return resolve(tmp_path)[0]


def test_a_bare_url_is_asked_what_it_serves(settings, endpoint):
    found = connect(settings, endpoint.url, "")
    assert (found.endpoint.model, found.endpoint.key, found.context_tokens) == ("small", "secret", 32_000)
    assert not found.compact
    client = found.client(3)
    assert (client.name, client.context_tokens) == ("small", 32_000)
    client.close()


def test_of_several_models_one_must_be_named(settings, endpoint):
    endpoint.models["large"] = {}
    with pytest.raises(UsageError, match="serves large, small"):
        connect(settings, endpoint.url, "")
    with pytest.raises(UsageError, match="serves large, small"):
        connect(settings, endpoint.url, "other")
    assert connect(settings, endpoint.url, "large").context_tokens == 128_000
    endpoint.models["large"] = {"meta": {"n_ctx_train": 8192}}
    assert connect(settings, endpoint.url, "large").context_tokens == 8192


def test_a_registered_endpoint(settings, registered, endpoint, monkeypatch):
    rest = 'remote_name = "small"\nkey_variable = "BOX_KEY"\ncompact = true\n'
    registered(f'[box]\nkind = "endpoint"\nwhere = "{endpoint.url}"\n{rest}')
    monkeypatch.setenv("BOX_KEY", "other")
    found = connect(settings, "", "box")
    assert (found.endpoint.model, found.endpoint.key, found.compact) == ("small", "other", True)


def test_a_model_of_an_earlier_language_is_refused(settings, registered, tmp_path):
    writer = gguf.GGUFWriter(str(tmp_path / "old.gguf"), "llama")
    writer.add_name("kernel-assistant")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    registered(f'["old"]\nkind = "gguf"\nwhere = "{tmp_path}/old.gguf"\ncompact = true\n')
    with pytest.raises(UsageError, match="model old writes kernels in the language of an earlier version"):
        connect(settings, "", "old")


def test_nothing_named_and_nothing_there(settings, monkeypatch):
    monkeypatch.setattr(registry, "SHIPPED", settings.state_dir / "nothing.gguf")
    with pytest.raises(NoModelError):
        connect(settings, "", "")
    with pytest.raises(MissingError, match="cannot be reached"):
        connect(settings, "http://127.0.0.1:9/v1", "")
