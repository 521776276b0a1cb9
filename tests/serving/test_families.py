"""Each family of models is served with its own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_assistant.serving.template import CHAT_TEMPLATE
from kernel_assistant.serving.vllm import parsers, template_of

#: Replies that real templates rendered, by family.
SAMPLES = json.loads((Path(__file__).parents[1] / "agent" / "reply_samples.json").read_text(encoding="utf-8"))
PARSERS = {
    "hermes_qwen_json: qwen3": "hermes",
    "qwen3_coder_xml: qwen3-coder": "qwen3_coder",
    "glm: glm-4.5/4.6": "glm45",
    "mistral: v3/v7": "mistral",
    "mistral: v13": "mistral",
    "deepseek_v3_r1: V3 / V3-0324": "deepseek_v3",
    "deepseek_v31: V3.1 non thinking": "deepseek_v31",
    "kimi_k2: K2": "kimi_k2",
    "gpt_oss_harmony: final": "openai",
    "minimax_m2: M2": "minimax_m2",
    "granite: 3.0/3.2/3.3": "granite",
    "seed_oss: seed-oss": "seed_oss",
    "gemma: gemma3 pythonic": "hermes",
}


@pytest.mark.parametrize("family", PARSERS)
def test_a_family_is_known_by_what_its_template_writes(family: str) -> None:
    words = parsers(SAMPLES[family])
    assert words[words.index("--tool-call-parser") + 1] == PARSERS[family]
    assert ("--reasoning-parser" in words) == family.startswith("gpt_oss")


def test_our_own_template() -> None:
    assert parsers(CHAT_TEMPLATE) == ("--tool-call-parser", "hermes")


def test_where_a_template_stands(tmp_path: Path) -> None:
    assert template_of("nobody/nothing") == template_of(str(tmp_path)) == ""
    (tmp_path / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    assert template_of(str(tmp_path)) == ""
    several = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "[TOOL_CALLS]"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}), encoding="utf-8")
    assert template_of(str(tmp_path)) == "[TOOL_CALLS]"
    (tmp_path / "chat_template.jinja").write_text("<tool_call>", encoding="utf-8")
    assert template_of(str(tmp_path)) == "<tool_call>"
