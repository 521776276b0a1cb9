"""The model that comes with the package: it is small enough to ship, and its card describes this very file."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess

import pytest

from kernel_assistant.cli import main
from kernel_assistant.errors import UsageError
from kernel_assistant.serving import registry
from kernel_assistant.serving.card import ModelCard, card_of

TEXT = """sha256 = "ab"
made_for = "first answers"
data = "written pairs"
recipe = "pretrain"
commit = "1234567"
cannot = "repair"
turns = 1

[figures]
"verified at one attempt, CPU" = "76%"
"""


def test_the_shipped_files_belong_together():
    there = [path.exists() for path in (registry.SHIPPED, registry.SHIPPED.with_suffix(".toml"))]
    assert there in ([True, True], [False, False])
    if all(there):
        assert registry.SHIPPED.stat().st_size <= 15_000_000
        assert card_of(registry.SHIPPED).sha256 == hashlib.sha256(registry.SHIPPED.read_bytes()).hexdigest()


def test_what_is_tracked_travels_to_other_machines(root):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False).stdout
    files = [root / name for name in listed.split("\0") if name]
    if not files:
        pytest.skip("not a checkout")
    # A machine that is lent takes a checkout of 64 MiB, with what is carried beside the tracked files.
    assert sum(path.stat().st_size for path in files if path.is_file()) < 32 << 20


def test_models_info_shows_the_card(tiny, settings, monkeypatch, tmp_path, capsys):
    file = tmp_path / "model.gguf"
    shutil.copy(tiny.gguf, file)
    file.with_suffix(".toml").write_text(TEXT)
    monkeypatch.setattr(registry, "SHIPPED", file)
    assert registry.find("", settings).turns == 1
    assert main(["models", "info"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "name: shipped" in shown and "made for: first answers" in shown and "commit: 1234567" in shown
    assert shown[-2:] == ["figures:", "  verified at one attempt, CPU: 76%"]
    assert main(["models", "info", "--json"]) == 0
    assert ModelCard(**json.loads(capsys.readouterr().out)["card"]) == card_of(file)
    assert main(["models", "remove", "shipped"]) == 2
    assert "comes with the package" in capsys.readouterr().err


def test_a_card_that_does_not_fit_is_said(tmp_path):
    file = tmp_path / "model.gguf"
    assert card_of(file) is None
    file.with_suffix(".toml").write_text(TEXT.replace("turns = 1", "turns = 'many'"))
    with pytest.raises(UsageError, match=r"model.toml: .*turns"):
        card_of(file)
