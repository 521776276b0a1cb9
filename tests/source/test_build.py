from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, KernelTask, Numerics, decode, encode
from kernel_assistant.source import build_task
from kernel_assistant.source.build import SeveralClassesError

MODULES = Path(__file__).parent.parent / "data" / "modules" / "good"
FORWARD = "    def forward(self, x):\n        return x\n"


def build(spec: object, **options: object) -> KernelTask:
    return build_task(str(spec), target="cpu", numerics="kernelbench", **options)  # type: ignore[arg-type]


def test_the_only_class() -> None:
    task = build(MODULES / "softmax_rows.py")
    assert (task.class_name, task.source, task.numerics) == ("Model", InputSource.get_inputs, Numerics.kernelbench)
    assert task.path == str(MODULES / "softmax_rows.py") and task.name == "softmax_rows.py:Model"
    assert (task.module_name, task.search_path) == ("softmax_rows", (str(MODULES),))
    assert decode(encode(task), KernelTask) == task


def test_several_classes_with_inputs_are_named_and_the_only_one_is_taken(tmp_path: Path) -> None:
    with pytest.raises(SeveralClassesError, match=r"holds several modules: NormGelu, Plain") as caught:
        build(MODULES / "norms.py")
    assert caught.value.names == ("NormGelu", "Plain")
    text = (MODULES / "norms.py").read_text().replace("# kernel-assistant: name", "# ")
    (tmp_path / "norms.py").write_text(text)
    assert build(tmp_path / "norms.py").class_name == "Plain"


def test_a_slip_in_the_comment_of_a_class_is_no_concern_of_its_neighbours(tmp_path: Path) -> None:
    text = (MODULES / "norms.py").read_text()
    (tmp_path / "norms.py").write_text(text.replace("name=small inputs=", "name=small imputs="))
    assert build(f"{tmp_path / 'norms.py'}:Plain").class_name == "Plain"
    with pytest.raises(UsageError, match="unknown field 'imputs'"):
        build(f"{tmp_path / 'norms.py'}:NormGelu")
    with pytest.raises(SeveralClassesError):
        build(tmp_path / "norms.py")


def test_model_before_others(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    both = f"class Model(nn.Module):\n{FORWARD}class Other(nn.Module):\n{FORWARD}def get_inputs(): ...\n"
    file.write_text(f"from torch import nn\n{both}")
    assert build(file).class_name == "Model"


def test_package_root_goes_to_the_search_path() -> None:
    task = build(MODULES / "attention" / "net.py")
    assert (task.module_name, task.search_path) == ("attention.net", (str(MODULES),))


def test_a_file_named_like_a_standard_module(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text((MODULES / "softmax_rows.py").read_text())
    assert build(tmp_path / "random.py").module_name == "random_module"


def test_unsaved_text_counts(tmp_path: Path) -> None:
    task = build(tmp_path / "not_saved.py", text=(MODULES / "softmax_rows.py").read_text())
    assert task.class_name == "Model" and task.path == str(tmp_path / "not_saved.py")


def test_relative_path_and_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_bytes(b"\xef\xbb\xbf" + (MODULES / "softmax_rows.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert build("net.py:Model").path == str(tmp_path / "net.py")


MODULE = "from torch import nn\n"
BAD_FILES = {
    "": "holds no torch.nn.Module class",
    "x = 1\n": "holds no torch.nn.Module class",
    "def f(:\n": "bad.py:1",
    MODULE + "class A(nn.Module): pass\n": "no torch.nn.Module class with a forward method",
    MODULE + f"def f():\n    class A(nn.Module):\n    {FORWARD.replace('    ', '        ')}": "at the top level",
    MODULE + f"class A(nn.Module):\n{FORWARD}": "no inputs are declared for A",
    MODULE
    + f"class A(nn.Module):\n{FORWARD}class B(nn.Module):\n{FORWARD}": "several modules and none has inputs: A, B",
}


@pytest.mark.parametrize(("text", "cause"), BAD_FILES.items())
def test_bad_files(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    one_line(tmp_path / "bad.py", cause)


def test_bad_names(tmp_path: Path) -> None:
    text = MODULE + f"class A(nn.Module):\n{FORWARD}class B(nn.Module): pass\ndef f():\n    class C(nn.Module): pass\n"
    (tmp_path / "bad.py").write_text(text)
    one_line(f"{tmp_path}/bad.py:D", "has no torch.nn.Module class D")
    one_line(f"{tmp_path}/bad.py:B", "B has no forward method")
    one_line(f"{tmp_path}/bad.py:C", "nested in a function or a class")


def test_bad_paths(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    one_line(tmp_path / "missing.py", "does not exist")
    one_line(tmp_path, "is a folder")
    one_line(tmp_path / "latin.py", r"latin.py is not UTF-8 text \(byte 5, line 1; Latin-1\?\)")
    one_line("", "no file is named")
    one_line(f"{tmp_path}/a\0b.py", "cannot be read")


def one_line(spec: object, cause: str) -> None:
    with pytest.raises(UsageError, match=cause) as caught:
        build(spec)
    assert "\n" not in caught.value.cause and caught.value.next_step and "\n" not in caught.value.next_step
