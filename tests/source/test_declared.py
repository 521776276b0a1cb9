from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, KernelTask, Workload
from kernel_assistant.source import build_task
from kernel_assistant.source.comments import FIELDS, split_fields

CLASS = "from torch import nn\n{above}class Net(nn.Module):\n{inside}    def forward(self, x): return x\n{below}"


def task_of(tmp_path: Path, above: str = "", inside: str = "", below: str = "", toml: str = "") -> KernelTask:
    (tmp_path / "net.py").write_text(CLASS.format(above=above, inside=inside, below=below))
    if toml:
        (tmp_path / "pyproject.toml").write_text(toml)
    return build_task(str(tmp_path / "net.py"), target="cpu", numerics="kernelbench")


def test_comment_above(tmp_path: Path) -> None:
    above = '# kernel-assistant: inputs=(torch.randn(8, 1024),) init=(1024,) kwargs={"a": 1}\n# other\n'
    task = task_of(tmp_path, above=above)
    assert task.source is InputSource.comment
    assert task.workloads == (Workload(name="default", args="(torch.randn(8, 1024),)", kwargs='{"a": 1}'),)
    assert (task.init, task.init_kwargs) == ("(1024,)", "")


def test_training_mode(tmp_path: Path) -> None:
    comment = "# kernel-assistant: inputs=(x,) training=True\n"
    assert task_of(tmp_path, above=comment).training
    assert not task_of(tmp_path, above=comment.replace("True", "False")).training
    with pytest.raises(UsageError, match="training=1 is neither True nor False"):
        task_of(tmp_path, above=comment.replace("True", "1"))
    table = '[tool.kernel-assistant.modules."net.py:Net"]\ninputs = "(x,)"\n'
    assert not task_of(tmp_path, toml=table).training
    assert task_of(tmp_path, toml=table + "training = true\n").training
    with pytest.raises(UsageError, match="training must be true or false"):
        task_of(tmp_path, toml=table + 'training = "True"\n')


def test_comment_inside_over_several_lines(tmp_path: Path) -> None:
    task = task_of(tmp_path, inside="    # kernel-assistant: inputs=(f(')'),\n    #   g(2),), init=[\n    #   3]\n")
    assert task.workloads[0].args == "(f(')'), g(2),)"
    assert task.init == "[ 3]"


def test_several_workloads(tmp_path: Path) -> None:
    comments = ("init=(4,)", "inputs=(a,) name=small", "inputs=(b,)")
    task = task_of(tmp_path, above="".join(f"# kernel-assistant: {fields}\n" for fields in comments))
    assert [(item.name, item.args) for item in task.workloads] == [("small", "(a,)"), ("workload2", "(b,)")]
    assert task.init == "(4,)"


def test_precedence(tmp_path: Path) -> None:
    functions = "def get_inputs():\n    return []\n"
    toml = '[tool.kernel-assistant.modules."net.py:Net"]\ninputs = "(t,)"\n'
    comment = "# kernel-assistant: inputs=(c,)\n"
    assert task_of(tmp_path, below=functions).source is InputSource.get_inputs
    assert task_of(tmp_path, below=functions, toml=toml).workloads[0].args == "(t,)"
    assert task_of(tmp_path, above=comment, below=functions, toml=toml).workloads[0].args == "(c,)"


def test_pyproject_of_a_folder_above(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "net.py").write_text(CLASS.format(above="", inside="", below=""))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kernel-assistant.modules."src/net.py:Net"]\ninit = "(3,)"\ninit_kwargs = "{}"\n'
        'workloads = [{name = "s", inputs = "(a,)"}, {name = "l", inputs = "(b,)", kwargs = "{\'k\': 1}"}]\n'
    )
    (tmp_path / "src" / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    task = build_task(str(tmp_path / "src" / "net.py"), target="cuda", numerics="strict")
    assert task.source is InputSource.pyproject and task.init == "(3,)" and task.target == "cuda"
    small, large = Workload(name="s", args="(a,)"), Workload(name="l", args="(b,)", kwargs="{'k': 1}")
    assert task.workloads == (small, large)


BAD_COMMENTS = {
    "# kernel-assistant: inputs=(torch.randn(8),\n": "is not a Python expression",
    "# kernel-assistant: inputs=(a,) inputs=(b,)\n": "twice",
    "# kernel-assistant: shapes=(8,)\n": "unknown field 'shapes'",
    "# kernel-assistant: optimize me\n": "cannot read",
    "# kernel-assistant:\n": "cannot read",
    "# kernel-assistant: init=(1,)\n": "no inputs",
    "# kernel-assistant: inputs=(a,) init=(1,)\n# kernel-assistant: name=b inputs=(a,) init=(2,)\n": "different values",
    "# kernel-assistant: name=b inputs=(a,)\n# kernel-assistant: name=b inputs=(c,)\n": "same name",
}


@pytest.mark.parametrize(("above", "cause"), BAD_COMMENTS.items())
def test_bad_comments(tmp_path: Path, above: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause) as caught:
        task_of(tmp_path, above=above)
    assert "net.py:2" in caught.value.cause and "\n" not in caught.value.cause and caught.value.next_step


BAD_TOML = {
    "[tool.kernel-assistant.modules\n": "not valid TOML",
    "[tool.kernel-assistant]\nmodules = 3\n": "not a table",
    '[tool.kernel-assistant.modules]\n"net.py:Net" = 3\n': "not a table",
    '[tool.kernel-assistant.modules."net.py:Net"]\nshape = "3"\n': "unknown key 'shape'",
    '[tool.kernel-assistant.modules."net.py:Net"]\ninit = "(3,)"\n': "no inputs",
    '[tool.kernel-assistant.modules."net.py:Net"]\ninputs = [8, 1024]\n': "must be a string",
    '[tool.kernel-assistant.modules."net.py:Net"]\ninputs = "(3"\n': "not a Python expression",
}


@pytest.mark.parametrize(("toml", "cause"), BAD_TOML.items())
def test_bad_pyproject(tmp_path: Path, toml: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause) as caught:
        task_of(tmp_path, toml=toml)
    assert "pyproject.toml" in caught.value.cause and caught.value.next_step


def test_nothing_declared_shows_the_comment_to_paste(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"net\.py:2: no inputs are declared for Net") as caught:
        task_of(tmp_path)
    _, _, line = caught.value.next_step.partition(": ")
    assert task_of(tmp_path, above=f"{line}\n").workloads[0].args == "(torch.randn(8, 1024),)"


values = st.recursive(
    st.one_of(st.integers(), st.text(alphabet="ab=, ()[]{}'\"\\#", max_size=8), st.booleans(), st.none()),
    lambda one: st.lists(one, max_size=3) | st.tuples(one) | st.dictionaries(st.text("ab", max_size=2), one),
)


@given(st.dictionaries(st.sampled_from(FIELDS[1:-1]), values, min_size=1), st.sampled_from([" ", ", ", "  "]))
def test_fields_survive_any_expression(fields: dict[str, object], separator: str) -> None:
    body = separator.join(f"{name}={value!r}" for name, value in fields.items())
    assert split_fields(body, "here") == {name: repr(value) for name, value in fields.items()}
