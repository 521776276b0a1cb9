from __future__ import annotations

import inspect
import pickle
import sys
from pathlib import Path

import pytest
import torch

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.opening.open_task import OpenTask
from kernel_assistant.worker.symbols import evaluate_size
from tests.worker.opened import module_text, open_file, open_text

GOOD = Path(__file__).parent.parent / "data" / "modules" / "good"
SOFTMAX = (GOOD / "softmax_rows.py").read_text()


def text_of(opened: OpenTask) -> str:
    return from_builtins(opened.graph, OpGraph).text()


def check_promises(opened: OpenTask) -> None:
    """Checks the properties that every open task must have, whatever the module."""
    args, kwargs = opened.inputs(0, 7)
    tensors = opened.flatten(args, kwargs)
    assert len(tensors) == len(opened.input_names)
    again, again_kwargs = opened.unflatten(tensors)
    outputs = opened.call(again, again_kwargs)
    for spec, output in zip(opened.out_specs, outputs, strict=True):
        assert [evaluate_size(size, opened.dims) for size in spec["shape"]] == list(output.shape)
        assert (spec["strides"] is None) == output.is_contiguous()
        assert not output.requires_grad
    want = opened.call64(args, kwargs)
    for output, exact in zip(outputs, want, strict=True):
        assert exact.dtype == (torch.float64 if output.is_floating_point() else output.dtype)
        torch.testing.assert_close(output.double(), exact.double(), rtol=2e-2, atol=2e-2)
    graph = from_builtins(opened.graph, OpGraph)
    constants = opened.constants()
    assert set(constants) == {value.name for value in graph.inputs if value.kind != "input"}
    for value in graph.inputs:
        tensor = constants.get(value.name) if value.kind != "input" else tensors[int(value.name[1:])]
        assert tensor is not None
        assert [evaluate_size(size, opened.dims) for size in value.spec.shape] == list(tensor.shape)
    assert opened.held_out_dims(), "these modules all take other batch sizes"


def test_softmax() -> None:
    opened = open_file(GOOD / "softmax_rows.py")
    check_promises(opened)
    assert text_of(opened) == (
        "dims B\ninput x0 f32[B,64]\nparam p0 f32[64]\n%n0 = mul.Tensor(%x0, %p0) f32[B,64]\n"
        "%n1 = softmax.int(%n0, -1) f32[B,64]\nreturn %n1\n"
    )
    assert opened.dims == {"B": 8} and opened.workload_dims == ({"B": 8},)
    assert opened.held_out_dims() == [{"B": 1}, {"B": 7}, {"B": 12}]
    assert opened.reference_is_float64
    facts = opened.facts
    assert (facts["parameters"], facts["input_bytes"], facts["output_bytes"], facts["ops"]) == (64, 2048, 2048, 2)
    assert facts["deterministic"] and not facts["constant_output"] and facts["eager_first_call_seconds"] > 0


def test_several_workloads_share_one_graph() -> None:
    opened = open_file(f"{GOOD / 'norms.py'}:Plain")
    check_promises(opened)
    opened = open_file(f"{GOOD / 'norms.py'}:NormGelu", workloads=[row("small", 8, 32), row("large", 24, 32)])
    check_promises(opened)
    assert opened.workload_dims == ({"B": 8}, {"B": 24})
    assert opened.inputs(1, 3, "normal", {"B": 5})[0][0].shape == (5, 32)
    assert opened.graph["inputs"][1]["path"] == "norm.weight"


def test_a_size_that_differs_between_workloads_is_free() -> None:
    text = SOFTMAX.replace("x * self.scale", "x + 1")
    opened = open_file(GOOD / "softmax_rows.py", content=text, workloads=[row("a", 8, 64), row("b", 8, 100)])
    assert opened.workload_dims == ({"B": 8, "B2": 64}, {"B": 8, "B2": 100})
    assert "softmax.int(%n0, -1) f32[B,B2]" in text_of(opened)


def row(name: str, *shape: int) -> dict[str, str]:
    return {"name": name, "args": f"(torch.randn{shape},)", "kwargs": ""}


def test_nested_inputs_and_outputs() -> None:
    opened = open_file(GOOD / "structured.py")
    check_promises(opened)
    assert opened.input_names == ["x0", "x1", "x2"]
    args, kwargs = opened.inputs(0, 1)
    assert args[1] is None and list(kwargs) == ["bias", "scale"]  # in the order of the signature
    assert [tuple(tensor.shape) for tensor in opened.call(args, kwargs)] == [(6, 4), (6, 8), (6, 8)]
    kinds = {value["name"]: (value["kind"], value["path"]) for value in opened.graph["inputs"] if value["path"]}
    assert kinds["b0"] == ("buffer", "shift") and kinds["b1"] == ("buffer", "gain")
    weights = [path for kind, path in kinds.values() if kind == "param" and path.endswith("weight")]
    assert len(weights) == 1, "tied weights are one value"


def test_integer_inputs_keep_their_range() -> None:
    opened = open_file(GOOD / "token_loss.py")
    check_promises(opened)
    tokens = opened.inputs(0, 5, "normal", {"B": 17})[0][0]
    assert tokens.shape == (17, 12) and tokens.dtype == torch.int64 and 0 <= int(tokens.min()) <= int(tokens.max()) < 50


def test_half_with_float_inside_and_a_cache() -> None:
    opened = open_file(GOOD / "half_norm.py")
    check_promises(opened)
    assert opened.reference_is_float64, "casts to float32 inside are lifted to float64"
    args, kwargs = opened.inputs(0, 3, "x10")
    (got,), (exact,) = opened.call(args, kwargs), opened.call64(args, kwargs)
    x = args[0].double()
    angles = torch.cos(torch.arange(16, dtype=torch.float64) / 16)
    want = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * angles
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(exact, want, rtol=1e-12, atol=1e-12)
    assert opened.model.angles.dtype == torch.float32, "tracing and float64 leave the module as it is"


def test_package_with_relative_import_and_dataclass() -> None:
    opened = open_file(GOOD / "attention" / "net.py")
    check_promises(opened)
    module = sys.modules["attention.net"]
    assert opened.module is module and module.__package__ == "attention"
    assert "class Scores" in inspect.getsource(module.Scores)
    assert pickle.loads(pickle.dumps(module.Settings(causal=False))).causal is False


def test_content_counts_and_edited_helpers_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "helper_for_net.py").write_text("FACTOR = 2\n")
    text = "import helper_for_net\n" + SOFTMAX.replace("x * self.scale", "x * helper_for_net.FACTOR")
    first = open_text(tmp_path, text)
    (tmp_path / "helper_for_net.py").write_text("FACTOR = 3  # edited\n")
    second = open_text(tmp_path, text)
    assert [task.graph["nodes"][0]["args"][1] for task in (first, second)] == [2, 3]
    assert first.module is not second.module
    unsaved = open_text(tmp_path, text, content=SOFTMAX.replace("softmax", "log_softmax"))
    assert unsaved.graph["nodes"][-1]["op"] == "log_softmax.int"
    assert "log_softmax" in inspect.getsource(type(unsaved.model))


def test_same_seed_same_module_and_inputs() -> None:
    one, other = open_file(GOOD / "token_loss.py"), open_file(GOOD / "token_loss.py")
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    for seed in (0, 1):
        for left, right in zip(one.inputs(0, seed)[0], other.inputs(0, seed)[0], strict=True):
            assert torch.equal(left, right)
    assert not torch.equal(one.inputs(0, 0)[0][0], one.inputs(0, 1)[0][0])


def test_prints_of_the_users_code_do_not_reach_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_text(tmp_path, "print('imported')\n" + SOFTMAX.replace("        return", "        print('ran'); return"))
    captured = capfd.readouterr()
    assert captured.out == "" and "imported" in captured.err and "ran" in captured.err


def test_training_mode_and_gradients() -> None:
    opened = open_file(GOOD / "softmax_rows.py", training=True)
    assert opened.model.training
    assert not any(parameter.requires_grad for parameter in opened.model.parameters())


def test_constant_output_is_recorded(tmp_path: Path) -> None:
    text = SOFTMAX.replace("torch.softmax(x * self.scale, dim=-1)", "x - x")
    assert open_text(tmp_path, text).facts["constant_output"] is True


def test_sizes_that_torch_traces_wrongly_are_fixed(tmp_path: Path) -> None:
    # torch 2.13 says that this loss is a scalar once its sizes are symbolic; what runs is what counts.
    text = (GOOD / "token_loss.py").read_text().replace("targets.flatten())", "targets.flatten(), reduction='none')")
    opened = open_text(tmp_path, text)
    (output,) = opened.call(*opened.inputs(0, 1))
    assert [evaluate_size(size, opened.dims) for size in opened.out_specs[0]["shape"]] == list(output.shape) == [72]


def test_float64_falls_back(tmp_path: Path) -> None:
    raw = "if x.dtype != torch.float32:\n    raise TypeError('float32 only')\nreturn x * 2"
    text = module_text(raw, "torch.randn(4, 3)").replace("[torch.randn(4, 3)]", "torch.randn(4, 3)  # no list")
    opened = open_text(tmp_path, text)
    args, kwargs = opened.inputs(0, 1)
    (output,) = opened.call64(args, kwargs)
    assert not opened.reference_is_float64 and output.dtype == torch.float64 and opened.facts["float64_failure"]
    assert torch.equal(output, opened.call(args, kwargs)[0].double())


@pytest.mark.gpu
def test_on_the_gpu() -> None:
    opened = open_file(GOOD / "token_loss.py", "cuda")
    check_promises(opened)
    assert all(value.is_cuda for value in opened.constants().values())
    assert text_of(opened) == text_of(open_file(GOOD / "token_loss.py"))


NEVER = {
    "": ("pass", "pass"),
    "its child out has hooks": ("self.out.register_forward_hook(lambda *_: None)", "pass"),
    "every call of forward changes its attribute calls": ("self.calls = 0", "self.calls += 1"),
    "every call of forward changes its attribute out.seen": ("self.out.seen = [0]", "self.out.seen.append(1)"),
}


@pytest.mark.parametrize("reason", NEVER)
def test_what_keeps_kernels_from_ever_running_is_known_at_the_start(tmp_path: Path, reason: str) -> None:
    built, called = NEVER[reason]
    text = module_text(f"{called}\nreturn self.out(x + 1)", "torch.ones(4)", f"self.out = nn.Identity()\n{built}")
    said = open_text(tmp_path, text).facts["never_runs"]
    assert said.startswith(reason) and bool(said) == bool(reason)
