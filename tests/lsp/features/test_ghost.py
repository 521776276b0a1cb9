"""Ghost text: verified lines appear only where they are still valid, and a model's lines only with a label."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsprotocol.types import Position

from kernel_assistant.apply.edit import BLOCK
from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.policy.chat import ChatClient, ChatSettings
from kernel_assistant.policy.client import PolicyError
from kernel_assistant.records import JobOutcome
from kernel_assistant_lsp.features import ghost
from kernel_assistant_lsp.text.snapshot import Snapshot
from tests.lsp.features.records import TEXT, job, snapshot
from tests.policy.endpoint import fails, says, served

ABOVE = Position(3, 0)


def accepted(text: str, position: Position = ABOVE) -> str | None:
    """The text after the first suggestion is accepted."""
    here = snapshot(text)
    items = ghost.body(here, position, job())
    if not items:
        return None
    (item,) = items
    assert item.range is not None and isinstance(item.insert_text, str)
    assert item.range.start.line == item.range.end.line
    assert "import" not in item.insert_text
    return text[: here.offset(item.range.start)] + item.insert_text + text[here.offset(item.range.end) :]


def test_body_above_the_class() -> None:
    found = accepted(TEXT)
    assert found is not None and decorated_classes(found) == ["Net"]
    compile(found, "net.py", "exec")
    (item,) = ghost.body(snapshot(), ABOVE, job())
    assert item.command is not None and item.command.command == "kernelAssistant.apply"
    what = {"uri": "file:///project/net.py", "class": "Net", "job": "7", "completed": True}
    assert item.command.arguments == [what]


def test_body_goes_on_what_is_typed() -> None:
    block = TEXT.replace("import torch\n", f"import torch\n\n{BLOCK}\n", 1)
    line = block[: block.index("\n\n\nclass")].count("\n") + 2
    for text, number in ((block, line), (TEXT, 3)):
        found = accepted(text.replace("\n\n\nclass", "\n\n@_wi\nclass"), Position(number, 4))
        assert found is not None and decorated_classes(found) == ["Net"]
    assert accepted(block.replace("\n\n\nclass", "\n\n@other\nclass"), Position(line, 6)) is None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (TEXT.replace("tanh", "sinh"), ABOVE),
        (TEXT.replace("class Net", "class Other"), ABOVE),
        (TEXT, Position(2, 0)),
        (TEXT, Position(5, 0)),
        (TEXT.replace("\n\n\nclass", "\n\nx = 1\nclass"), ABOVE),
        (TEXT.replace("class Net", "@decorator\nclass Net"), ABOVE),
    ],
)
def test_no_body_where_it_is_not_verified(text: str, position: Position) -> None:
    assert accepted(text, position) is None


def test_no_body_without_a_gain_or_twice() -> None:
    assert ghost.body(snapshot(), ABOVE, job(JobOutcome.no_measurable_gain)) == []
    once = accepted(TEXT)
    assert once is not None
    line = once[: once.index("@_with")].count("\n") - 1
    assert accepted(once, Position(line, 0)) is None


@pytest.mark.parametrize(
    ("above", "kept"),
    [("x = 1\n\n\n", True), ("x = 1\n\n\n\n", False), ("# about it\n\n", False), ("x = 1\n\n", False)],
)
def test_empty_lines_above_a_class_stay_two(above: str, kept: bool) -> None:
    text = TEXT.replace("from torch import nn\n\n\n", f"from torch import nn\n{above}")
    found = accepted(text, Position(text[: text.index("class Net")].count("\n") - 1, 0))
    assert found is not None
    before = found[: found.index("@_with")]
    assert before == text[: text.index("class Net")].removesuffix("" if kept else "\n")


CUDA = "__global__ void twice(float* x) {\n    int i = threadIdx.x;\n    \n}\n"


@pytest.fixture
def endpoint():
    with served() as server:
        yield server


def connected(endpoint) -> ChatClient:
    return ChatClient(ChatSettings(url=endpoint.url, model="m", first_pause=0.01, silence=5.0, attempts=1))


def workspace(folder: Path, text: str = CUDA) -> Snapshot:
    (folder / "sources").mkdir()
    (folder / "plan.json").write_text('{"launches": ["twice"]}')
    path = folder / "sources" / "kernel.cu"
    path.write_text(text)
    return Snapshot(path.as_uri(), path, text, 1)


def test_continuation_is_labelled_until_it_has_passed(tmp_path: Path, endpoint) -> None:
    here, position = workspace(tmp_path), Position(2, 4)
    endpoint.answers += [says({"content": "```cuda\nx[i] *= 2;\n}\n```"})] * 2
    (item,) = asyncio.run(ghost.continue_cuda(here, position, lambda: connected(endpoint)))
    assert item.insert_text == f"x[i] *= 2;  {ghost.LABEL}"
    sent = endpoint.bodies[0]["messages"][1]["content"]
    assert '"twice"' in sent and "int i = threadIdx.x;\n    <CURSOR>\n}" in sent
    whole = CUDA.replace("    \n}", "    x[i] *= 2;\n}")
    (item,) = asyncio.run(ghost.continue_cuda(here, position, lambda: connected(endpoint), whole.__eq__))
    assert item.insert_text == "x[i] *= 2;"
    assert ghost.without_labels(f"a;  {ghost.LABEL}\nb;\nc;  {ghost.LABEL}\n") == "a;\nb;\nc;\n"


def test_a_model_that_fails_is_said(tmp_path: Path, endpoint) -> None:
    endpoint.answers.append(fails(400))
    with pytest.raises(PolicyError):
        asyncio.run(ghost.continue_cuda(workspace(tmp_path), Position(2, 4), lambda: connected(endpoint)))


@pytest.mark.parametrize(
    ("said", "before", "after", "code"),
    [
        ("return x;", "", "", "return x;"),
        ("Sure:\n```cpp\nint a;\n```\nthat is it", "", "", "int a;"),
        ("```\nint a;", "", "", "int a;"),
        ("float y = x;", "    float y =", "", " x;"),
        ("a;\nb;\n}\nc;", "", "\n  }\n", "a;\nb;"),
        ("if (a) {\nb;\n}\n}", "", "\n  }\n", "if (a) {\nb;\n}"),
        ("a;\nreturn c;\nd;", "", "\nreturn c;\n", "a;"),
        ("\n".join("abcdefghijklmnop"), "", "", "\n".join("abcdefghijkl")),
        ("  ", "", "", "  "),
    ],
)
def test_what_counts_of_a_reply(said: str, before: str, after: str, code: str) -> None:
    assert ghost.continuation(said, before, after).rstrip() == code.rstrip()


def test_labels_do_not_break_lines_that_go_on() -> None:
    assert ghost.labelled("#define A \\\n  1") == f"#define A \\\n  1  {ghost.LABEL}"


def test_only_sources_of_workspaces(tmp_path: Path) -> None:
    here = workspace(tmp_path)
    assert ghost.in_workspace(here.path) and ghost.in_workspace(tmp_path / "flat.cuh")
    assert not ghost.in_workspace(tmp_path / "model.py") and not ghost.in_workspace(tmp_path.parent / "other.cu")
