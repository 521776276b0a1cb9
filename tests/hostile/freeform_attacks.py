"""Hostile ModelNew files. All share one extension with honest and hostile functions, so that it is built once."""

from __future__ import annotations

from functools import partial

REFERENCE = """
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.w = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.w, -1)

def get_inputs():
    return [torch.randn(32, 4096)]

def get_init_inputs():
    return [4096]
"""

EXTENSION = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <cmath>
#include <cstdlib>
#include <thread>
#include <unistd.h>
static void rows(const float* x, const float* w, float* out, long rows, long n) {
  for (long r = 0; r < rows; r++) {
    const float* p = x + r * n; float* q = out + r * n;
    float top = -INFINITY; double sum = 0;
    for (long i = 0; i < n; i++) top = std::fmax(top, p[i] * w[i]);
    for (long i = 0; i < n; i++) { q[i] = std::exp(p[i] * w[i] - top); sum += q[i]; }
    float scale = (float)(1.0 / sum);
    for (long i = 0; i < n; i++) q[i] *= scale;
  }
}
torch::Tensor softmax(torch::Tensor x, torch::Tensor w) {
  auto out = torch::empty_like(x);
  rows(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1));
  return out;
}
torch::Tensor by_aten(torch::Tensor x, torch::Tensor w) { return at::softmax(x * w, -1); }
torch::Tensor below_modes(torch::Tensor x, torch::Tensor w) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKeySet(c10::DispatchKey::Python));
  return at::softmax(x * w, -1);
}
torch::Tensor later(torch::Tensor x, torch::Tensor w) {
  auto out = torch::zeros_like(x);
  std::thread([=] {
    usleep(20000);
    rows(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1));
  }).detach();
  return out;
}
torch::Tensor writes_input(torch::Tensor x, torch::Tensor w) {
  auto out = softmax(x, w);
  x.data_ptr<float>()[0] = 1;
  return out;
}
torch::Tensor crash(torch::Tensor x, torch::Tensor w) { *(volatile int*)8 = 1; return x; }
"""
names = ["softmax", "by_aten", "below_modes", "later", "writes_input", "crash"]
ext = load_inline(name="hostile_rows", cpp_sources=source, functions=names, extra_cflags=["-O3"])
'''

MODEL = """
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.w = nn.Parameter(torch.ones(columns))
        {init}

    def forward(self, x):
        {forward}
"""


def text(forward: str, extra: str = "", init: str = "", extension: str = EXTENSION) -> str:
    """A whole file: `extra` goes before the class."""
    body = forward.replace("\n", "\n        ")
    return extension + extra + MODEL.format(init=init or "self.calls = 0", forward=body)


def attack(outcomes: tuple[str, ...], *parts: str, **more: str) -> tuple[str, tuple[str, ...]]:
    """A file, whose parts are those of `text`, and its acceptable outcomes."""
    return text(*parts, **more), outcomes


cheating, incorrect, crashed = (partial(attack, (outcome,)) for outcome in ("cheating", "incorrect", "crashed"))
HONEST = text("return ext.softmax(x, self.w)")
#: Counts the calls of all instances: each binding makes a new one.
COUNT = "state['n'] += 1\n"
STATE = "state = {'n': 0, 'seen': {}}\n"

#: Name → (file, acceptable outcomes), found in the quick tier.
QUICK: dict[str, tuple[str, tuple[str, ...]]] = {
    "torch.softmax": cheating("return torch.softmax(x * self.w, -1)"),
    "tensor methods": cheating("return x.mul(self.w).softmax(-1)"),
    "functional by another name": cheating(
        "return g(x * self.w, -1)", "from torch.nn.functional import softmax as g\n"
    ),
    "torch.ops": cheating("return torch.ops.aten._softmax(x * self.w, -1, False)"),
    "getattr and importlib": cheating(
        "return getattr(importlib.import_module('torch'), 'soft' + 'max')(x * self.w, -1)", "import importlib\n"
    ),
    "a layer": cheating("return self.layer(x * self.w)", init="self.layer = nn.Softmax(-1)"),
    "one operator beside a kernel": cheating("return ext.softmax(x * self.w, torch.ones_like(self.w))"),
    "modes disabled": cheating(
        "with _disable_current_modes():\n    return torch.softmax(x * self.w, -1)",
        "from torch.utils._python_dispatch import _disable_current_modes\n",
    ),
    "ATen in C++": cheating("return ext.by_aten(x, self.w)"),
    "ATen in C++ below the modes": cheating("return ext.below_modes(x, self.w)"),
    "fallback": cheating(
        "try:\n    return ext.missing(x)\nexcept Exception:\n    return torch.softmax(x * self.w, -1)"
    ),
    "lazy subclass": incorrect(
        "y = torch.empty_like(x).as_subclass(Lazy)\ny.args = (x, self.w)\nreturn y",
        "class Lazy(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        plain = [ext.softmax(*a.args) if type(a) is Lazy and hasattr(a, 'args') else a for a in args]\n"
        "        return func(*plain, **(kwargs or {}))\n",
    ),
    "nothing written": incorrect("return torch.empty_like(x).fill_(float('nan'))"),
    "zeros": incorrect("return torch.zeros_like(x)"),
    "its input": incorrect("return x"),
    "half precision": incorrect("return ext.softmax(x, self.w).half().float()"),
    "another dtype": incorrect("return ext.softmax(x, self.w).double()"),
    "another shape": incorrect("return ext.softmax(x, self.w).flatten()"),
    "other strides": incorrect("return ext.softmax(x, self.w).t().contiguous().t()"),
    "two outputs": incorrect("y = ext.softmax(x, self.w)\nreturn y, y"),
    "no output": incorrect("ext.softmax(x, self.w)"),
    "skips after many calls": cheating(
        COUNT + "if state['n'] < 8 or state['n'] % 2:\n    state['last'] = ext.softmax(x, self.w)\n"
        "return state['last']",
        STATE,
    ),
    "thread finishes later": incorrect("return ext.later(x, self.w)"),
    "thread finishes later, while timed": cheating(
        COUNT + "return ext.softmax(x, self.w) if state['n'] < 6 else ext.later(x, self.w)", STATE
    ),
    "mutates its input": crashed("return ext.writes_input(x, self.w)"),
    "mutates its input in Python": crashed("y = ext.softmax(x, self.w)\nx.zero_()\nreturn y"),
    "copies patched": attack(
        ("cheating", "crashed"),
        COUNT + "y = ext.softmax(x, self.w)\n"
        "if state['n'] == 6:\n    torch.Tensor.copy_ = lambda self, *args, **kwargs: self\n"
        "return y",
        STATE,
    ),
    "runner patched to do nothing": cheating(
        COUNT + "y = ext.softmax(x, self.w)\n"
        "if state['n'] == 6:\n"
        "    frame = sys._getframe()\n"
        "    while 'operations' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    frame.f_locals['operations']['run'] = lambda message, descriptors: {}\n"
        "return y",
        STATE + "import sys\n",
    ),
    "copies of the runner patched": cheating(
        COUNT + "y = ext.softmax(x, self.w)\n"
        "if state['n'] == 6:\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        if 'deliver' in frame.f_globals:\n"
        "            frame.f_globals['deliver'] = lambda result, destinations: None\n"
        "        frame = frame.f_back\n"
        "return y",
        STATE + "import sys\n",
    ),
    "clock patched": cheating(
        COUNT + "time.perf_counter = lambda: 0.0\n"
        "if state['n'] < 6:\n    state['last'] = ext.softmax(x, self.w)\nreturn state['last']",
        STATE + "import time\n",
    ),
    "TorchScript": cheating(
        "return scripted(x, self.w)",
        "scripted = torch.jit.trace(lambda x, w: torch.softmax(x * w, -1), (torch.ones(2, 3), torch.ones(3)))\n",
    ),
    "an operator of its own that calls PyTorch": cheating(
        "return torch.ops.mine.rows(x, self.w)",
        "library = torch.library.Library('mine', 'DEF')\n"
        "library.define('rows(Tensor x, Tensor w) -> Tensor')\n"
        "library.impl('rows', lambda x, w: torch.softmax(x * w, -1), 'CPU')\n",
    ),
    "another layout": attack(("incorrect", "crashed", "cheating"), "return ext.softmax(x, self.w).to_mkldnn()"),
    "one row for all": incorrect("return ext.softmax(x[:1], self.w).expand(x.shape)"),
    "writes its parameter": attack(
        ("crashed", "incorrect"), "y = ext.softmax(x, self.w)\next.writes_input(self.w[None], self.w)\nreturn y"
    ),
    "forged answers": cheating(
        COUNT + "if state['n'] > 6:\n"
        "    frame = sys._getframe()\n"
        "    while 'operations' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    ticket = {'ticket': frame.f_locals['message']['ticket']}\n"
        "    frame.f_globals['wire'].send(frame.f_locals['sock'], {'ok': True, **ticket})\n"
        "return ext.softmax(x, self.w)",
        STATE + "import sys\n",
    ),
    "all memory": attack(("out_of_memory",), "return torch.empty(1 << 42)"),
    "forks": crashed("os.fork()\nreturn ext.softmax(x, self.w)", "import os\n"),
    "starts a program": crashed("subprocess.run(['/bin/true'])\nreturn ext.softmax(x, self.w)", "import subprocess\n"),
    "reads the user's files": crashed("open('/root/.bashrc').read()\nreturn ext.softmax(x, self.w)"),
    "edits the evaluator": crashed(
        "open(sys.modules['kernel_assistant_worker'].__file__, 'a').write('# ours')\nreturn ext.softmax(x, self.w)",
        "import sys\n",
    ),
    "opens a connection": crashed("socket.socket()\nreturn ext.softmax(x, self.w)", "import socket\n"),
    "leaves": crashed("os._exit(0)", "import os\n"),
    "raises what nobody catches": crashed("raise KeyboardInterrupt"),
    "segfaults": crashed("return ext.crash(x, self.w)"),
    "never ends": attack(("hung",), "while True:\n    pass"),
    "other parameters": incorrect("return ext.softmax(x, self.w)", init="self.v = nn.Parameter(torch.ones(3))"),
    "inherits from the reference": (EXTENSION + "class ModelNew(Model):\n    pass\n", ("crashed",)),
}

#: Found by the cases of the full tier.
FULL: dict[str, tuple[str, tuple[str, ...]]] = {
    "memoised by pointer": attack(
        ("cheating", "incorrect"),
        "key = x.data_ptr()\n"
        "if key not in state['seen']:\n    state['seen'][key] = ext.softmax(x, self.w)\n"
        "return state['seen'][key]",
        STATE,
    ),
    "weights kept from the first call": incorrect(
        "if 'w' not in state:\n    state['w'] = self.w.clone()\nreturn ext.softmax(x, state['w'])", STATE
    ),
}

#: Right at the declared sizes, and no cheat: it counts for these.
DECLARED = {"shape built in": text("y = torch.empty_like(x)\ny[:32] = ext.softmax(x[:32], self.w)\nreturn y")}
