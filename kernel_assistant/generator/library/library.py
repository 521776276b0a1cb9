"""Decides which nodes of a graph a library computes, and writes the launches for them. CUDA only; see
docs/libraries.md.

A group is a product or a convolution with the operators after it that can be fused: the addition of a bias or of
another tensor, ReLU, after a product GELU with its tanh approximation, and SiLU after a convolution with a bias and
channels last.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.library.contraction import Matmul, Matrix, as_matmul, is_bias, matrix_like
from kernel_assistant.generator.library.convolutions import CONVOLUTIONS, Convolution, is_channel_bias, read_convolution
from kernel_assistant.generator.library.products import PRODUCTS, ProductTerms, argument, read_product
from kernel_assistant.generator.loops.strided import VIEWS, Resolver, View
from kernel_assistant.records import BufferSpec, Launch, Node, OpGraph
from kernel_assistant.records.graph import readers_of
from kernel_assistant.records.library import FLOATS

#: What the name of a product ends in whose operands are sums of two parts (`plan/split_products.py`); the parts with
#: the lower bits are `left_low` and `right_low`.
SPLIT = ".split"
#: What the name of a product or convolution ends in that is computed in TF32, whatever PyTorch's flags say.
TF32 = ".tf32"
#: Views through which a reader is looked for.
TURNS = frozenset("permute transpose swapaxes".split())
_OPERATORS = PRODUCTS.keys() | CONVOLUTIONS.keys()


@dataclass(slots=True)
class _Call:
    """A library call, into which following nodes can be fused. `last` is the name of the node whose value the call
    writes."""

    node: Node
    last: str
    bias: View | None = None
    added: tuple[View, Matrix] | None = None
    beta: float = 0.0
    activation: str = ""

    @property
    def epilogue(self) -> str:
        parts = [*(["bias"] if self.bias else []), *([self.activation] if self.activation else [])]
        return "_".join(parts) or "none"


class _ProductCall(_Call):
    """A product computed by cuBLASLt. The constructor raises Unsupported if cuBLASLt cannot compute it."""

    def __init__(self, node: Node, values: Resolver) -> None:
        super().__init__(node, node.name)
        self.written: ProductTerms = read_product(node, values)
        self.matmul: Matmul = as_matmul(self.written.product)
        self.lows: list[View] = []
        if node.op.endswith(SPLIT):
            self.lows = [values.view(node.kwargs[f"{side}_low"]) for side in ("left", "right")]
        if self.written.added is not None and not self.add(self.written.added, self.written.beta):
            raise Unsupported(f"{node.op} adds what is neither a bias nor of the result's shape")

    def add(self, view: View, beta: float = 1.0) -> bool:
        """Fuses the addition of a tensor into the call if the library can do so; returns whether it did."""
        product = self.written.product
        if view.dtype != product.out.dtype:
            return False
        if beta == 1.0 and self.bias is None and is_bias(view, product, self.matmul):
            self.bias = view
            return True
        if self.added is not None:
            return False
        try:
            self.added, self.beta = (view, matrix_like(view, product, self.matmul)), beta
        except Unsupported:
            return False
        return True

    def activate(self, node: Node) -> bool:
        kind = "relu" if node.op == "relu" else "gelu" if _is_tanh_gelu(node) else ""
        self.activation = kind
        return bool(kind)

    def views(self) -> list[View]:
        product = self.written.product
        turn = -1 if self.matmul.swapped else 1
        return [
            *[product.left, product.right][::turn],
            *self.lows[::turn],
            *([self.added[0]] if self.added else []),
            *self._bias(),
        ]

    def _bias(self) -> list[View]:
        return [self.bias] if self.bias else []

    def launch(self, symbol: str) -> Launch:
        sizes = self.matmul.sizes()
        if self.added:
            matrix = self.added[1]
            sizes |= {"ldc": size_text(matrix.step), "stride_c": size_text(matrix.stride)}
        fields = [
            "a",
            "b",
            *(["a_low", "b_low"] if self.lows else []),
            *(["c"] if self.added else []),
            *(["bias"] if self.bias else []),
        ]
        settings = {
            "transpose_a": str(int(self.matmul.a.transposed)),
            "transpose_b": str(int(self.matmul.b.transposed)),
            "alpha": repr(self.written.alpha),
            "beta": repr(self.beta),
            "epilogue": self.epilogue,
            "compute": "split" if self.lows else _compute(self.node),
        }
        return _launch(f"{symbol}matmul", "cublaslt.matmul", fields, self.views(), sizes, settings)


class _ConvolutionCall(_Call):
    """A convolution computed by cuDNN; `z` is a tensor of the result's shape that is added. The constructor raises
    Unsupported if cuDNN cannot compute it.
    """

    def __init__(self, node: Node, values: Resolver) -> None:
        super().__init__(node, node.name)
        self.convolution: Convolution = read_convolution(node, values)
        self.z: View | None = None

    @property
    def epilogue(self) -> str:
        steps = (("bias", self.bias), ("add", self.z), (self.activation, self.activation))
        return "_".join(name for name, present in steps if present) or "none"

    def add(self, view: View) -> bool:
        """Fuses the addition of a tensor into the call if the library can do so; returns whether it did. After a
        transposed or depthwise convolution the library would make a separate pass, so a kernel of the generator adds
        the tensor.
        """
        out = self.convolution.out
        depthwise = self.convolution.settings["groups"] != "1" and self.convolution.w.sizes[1] == 1
        if self.convolution.transposed or depthwise or view.dtype != out.dtype:
            return False
        same = (view.sizes, view.strides) == (out.sizes, out.strides)
        # With channels first cuDNN adds it in a pass of its own.
        if self.z is None and same and self.convolution.settings["layout"] == "nhwc":
            self.z = view
            return True
        if self.bias is not None or not is_channel_bias(view, len(out.sizes)):
            return False
        if view.sizes[len(view.sizes) - len(out.sizes) + 1] != out.sizes[1]:
            return False
        self.bias = view
        return True

    def activate(self, node: Node) -> bool:
        added = self.bias is not None or self.z is not None
        if (node.op == "relu" and added) or (node.op == "silu" and self._takes_silu):
            self.activation = node.op
        return bool(self.activation)

    @property
    def _takes_silu(self) -> bool:
        """Whether cuDNN fuses SiLU. With channels first, groups or float64 it would compute SiLU in a separate pass."""
        settings = self.convolution.settings
        fusable = (settings["layout"], settings["groups"]) == ("nhwc", "1") and self.convolution.out.dtype != "f64"
        return fusable and self.bias is not None and self.z is None

    def shed(self) -> int:
        """Takes the fused operators out of the call again, so that the next kernel computes them, unless the last one
        is ReLU. Returns how many operators were taken out."""
        if self.activation == "relu":
            return 0
        count = (self.bias is not None) + (self.z is not None) + bool(self.activation)
        self.bias, self.z, self.activation = None, None, ""
        return count

    def views(self) -> list[View]:
        added = [view for view in (self.z, self.bias) if view is not None]
        return [self.convolution.x, self.convolution.w, *added]

    def launch(self, symbol: str) -> Launch:
        name = "conv_transpose" if self.convolution.transposed else "conv"
        settings = {**self.convolution.settings, "epilogue": self.epilogue, "compute": _compute(self.node)}
        fields = ["x", "w", *(["z"] if self.z else []), *(["bias"] if self.bias else [])]
        return _launch(f"{symbol}{name}", f"cudnn.{name}", fields, self.views(), self.convolution.sizes, settings)


def library_nodes(graph: OpGraph, target: str) -> tuple[tuple[str, ...], ...]:
    """Returns groups of node names; one library launch computes each group. On the CPU there are none. Never raises."""
    if target != "cuda" or not any(_operator(node) in _OPERATORS for node in graph.nodes):
        return ()
    values, readers = Resolver(graph), readers_of(graph)
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for node in graph.nodes:
        if _operator(node) not in _OPERATORS or node.name in taken:
            continue
        try:
            _, group = _grow(node, values, readers, taken)
        except Unsupported:
            continue
        groups.append(group)
        taken.update(group)
    return tuple(groups)


def emit_library(part_graph: OpGraph, prefix: str) -> tuple[list[Launch], tuple[BufferSpec, ...]]:
    """Returns a list with the one library launch that computes `part_graph` (one kernel's share of a graph) and writes
    `out0`, and an empty tuple, because it needs no scratch buffers. `prefix` begins the name of the launch. Raises
    Unsupported if the graph is not exactly one product or convolution with operators that the library can fuse.
    """
    values, readers = Resolver(part_graph), readers_of(part_graph)
    written = {node.name for node in part_graph.nodes if _operator(node) not in VIEWS}
    heads = [node for node in part_graph.nodes if _operator(node) in _OPERATORS]
    if len(heads) != 1 or len(part_graph.outputs) != 1:
        raise Unsupported("a library part is one product or convolution with one result")
    call, group = _grow(heads[0], values, readers)
    if set(group) != written or call.last != part_graph.outputs[0]:
        raise Unsupported(f"{heads[0].op} does not fuse all of its part")
    return [call.launch(prefix)], ()


def _grow(
    node: Node, values: Resolver, readers: dict[str, list[Node]], taken: AbstractSet[str] = frozenset()
) -> tuple[_ProductCall | _ConvolutionCall, tuple[str, ...]]:
    """Returns the library call that computes `node` and all following operators that can be fused into it, and the
    names of these nodes in order. Nodes in `taken` belong to other calls: an addition of two products belongs to the
    first one.
    """
    call = _ConvolutionCall(node, values) if _operator(node) in CONVOLUTIONS else _ProductCall(node, values)
    dtypes = {view.dtype for view in call.views()} | {node.spec.dtype}
    if len(dtypes) > 1 or not dtypes <= set(FLOATS):
        raise Unsupported(f"{node.op} of {', '.join(sorted(dtypes))}")
    group = [node.name]
    while (follower := _only_reader(group[-1], values, readers)) is not None:
        if follower.name in taken or follower.spec != node.spec or not _fuse(call, group[-1], follower, values):
            break
        group.append(follower.name)
        if call.activation:
            break
    if isinstance(call, _ConvolutionCall) and _in_a_kernel(group[-1], readers):
        group = group[: len(group) - call.shed()]
    call.last = group[-1]
    return call, tuple(group)


def _in_a_kernel(value: str, readers: dict[str, list[Node]]) -> bool:
    """Whether only kernels of the generator read a value. Adding tensors and SiLU cost nothing in such a kernel, and
    cuDNN without them can choose any engine.
    """
    followers = readers.get(value, [])
    return bool(followers) and all(
        _in_a_kernel(node.name, readers) if _operator(node) in TURNS else _operator(node) not in _OPERATORS | VIEWS
        for node in followers
    )


def _fuse(call: _ProductCall | _ConvolutionCall, value: str, node: Node, values: Resolver) -> bool:
    """Fuses `node`, which reads `value`, into the call if the library can compute it there; returns whether it did."""
    if node.op != "add.Tensor":
        return call.activate(node)
    if argument(node, 2, "alpha", 1) != 1 or len(node.args) < 2:
        return False
    others = [operand for operand in node.args[:2] if operand != f"%{value}"]
    if len(others) != 1:
        return False
    try:
        return call.add(values.view(others[0]))
    except Unsupported:
        return False


def _only_reader(name: str, values: Resolver, readers: dict[str, list[Node]]) -> Node | None:
    nodes = readers.get(name, [])
    return nodes[0] if len(nodes) == 1 and name not in values.outputs else None


def _is_tanh_gelu(node: Node) -> bool:
    return node.op == "gelu" and argument(node, 1, "approximate", "none") == "tanh"


def _compute(node: Node) -> str:
    return "tf32" if node.op.endswith(TF32) else "flags"


def _operator(node: Node) -> str:
    return node.op.partition(".")[0]


def _launch(
    symbol: str, library: str, fields: list[str], views: list[View], sizes: dict[str, str], settings: dict[str, str]
) -> Launch:
    buffers = tuple((field, view.root) for field, view in zip(fields, views, strict=True))
    args = (*buffers, ("out", "out0"), *sizes.items())
    return Launch(symbol=symbol, library=library, args=args, settings=tuple(settings.items()))
