"""`kernel-assistant mcp` where the extra is not installed."""

from __future__ import annotations

import sys

import pytest

from kernel_assistant.cli import main


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("kernel_assistant.mcp", "mcp."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 3
    assert "pip install 'kernel-assistant[mcp]'" in capsys.readouterr().err
