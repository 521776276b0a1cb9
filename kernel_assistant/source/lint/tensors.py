"""Decides which expressions of a method are tensors, as far as the text of the method shows this."""

from __future__ import annotations

import ast
import re
from enum import Enum

from kernel_assistant.source.lint.classes import Function, ModuleScope, is_self, statements, walk


class TensorKind(Enum):
    """What kind of value an expression has. `reduced` is a small tensor, such as a sum or an `arange`: operations on it
    take no significant time. `host` is certainly not a tensor: a number, a size or a string."""

    tensor = "tensor"
    reduced = "reduced"
    host = "host"
    unknown = "unknown"


#: Attributes and methods that only tensors have, among the usual arguments of a module.
_TELLING = frozenset(
    """shape size view reshape permute transpose contiguous unsqueeze squeeze flatten expand expand_as masked_fill
    softmax unbind chunk type_as new_zeros new_empty new_ones new_full matmul mT is_cuda ndim detach requires_grad
    float half bfloat16 numel stride unfold repeat_interleave index_select gather scatter exp log log1p sqrt rsqrt
    abs relu sigmoid tanh pow clamp sum mean cumsum""".split()
)
_HOST_RESULT = frozenset(
    """size dim ndimension numel nelement stride item tolist element_size data_ptr get_device is_contiguous
    is_floating_point is_complex is_pinned storage_offset numpy untyped_storage names type shape ndim device dtype
    is_cuda requires_grad layout is_tensor is_grad_enabled finfo iinfo Size is_autocast_enabled broadcast_shapes
    promote_types result_type get_default_dtype is_inference_mode_enabled allclose equal is_nonzero
    get_autocast_dtype is_available current_device device_count is_scripting is_tracing is_compiling is_exporting
    manual_seed seed initial_seed Generator Stream Event current_stream cuda_synchronize autocast no_grad inference_mode
    enable_grad set_grad_enabled synchronize get_float32_matmul_precision""".split()
)
_SEVERAL = frozenset(
    "split chunk unbind tensor_split meshgrid broadcast_tensors topk sort var_mean std_mean svd qr eig eigh slogdet "
    "kthvalue mode cummax cummin aminmax unique_consecutive frexp lu lstsq hsplit vsplit dsplit".split()
)
_REDUCTIONS = frozenset("sum mean max min prod norm std var logsumexp any all amax amin argmax argmin".split())
#: Functions that make small tensors of numbers: positions, frequencies and constants.
_SMALL = frozenset("arange linspace logspace eye scalar_tensor tensor full".split())
_LOSSES = frozenset(
    """cross_entropy mse_loss l1_loss nll_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div
    binary_cross_entropy_with_logits cosine_embedding_loss triplet_margin_loss""".split()
)
_TENSOR_ATTRIBUTES = frozenset("T mT H mH data grad real imag".split())
_CONTAINERS = frozenset("list List tuple Tuple dict Dict Sequence Iterable Callable Mapping".split())
_SEVERAL_MODULES = frozenset("LSTM GRU RNN LSTMCell MultiheadAttention ModuleList ModuleDict".split())


class TensorNames:
    """The kinds of the variables of one method. A variable that is assigned different kinds has the kind `unknown`."""

    def __init__(self, scope: ModuleScope, method: Function) -> None:
        self._scope = scope
        self.names: dict[str, TensorKind] = self._parameters(method)
        for _ in range(2):  # a name that a loop assigns after its use is known in the second pass
            self._read(method)

    def is_tensor(self, expression: ast.expr | None) -> bool:
        """Whether an expression is certainly a tensor, of any size."""
        return expression is not None and self.kind(expression) in (TensorKind.tensor, TensorKind.reduced)

    def is_large(self, expression: ast.expr | None) -> bool:
        """Whether an expression is certainly a tensor and not of the kind `reduced`."""
        return expression is not None and self.kind(expression) is TensorKind.tensor

    def kind(self, expression: ast.expr) -> TensorKind:
        match expression:
            case ast.Name(id=name):
                return self.names.get(name, TensorKind.unknown)
            case ast.Constant() | ast.JoinedStr() | ast.List() | ast.Dict() | ast.Set() | ast.Tuple():
                return TensorKind.host
            case ast.BinOp(left=left, right=right):
                return _joined(self.kind(left), self.kind(right))
            case ast.Compare(left=left, ops=ops, comparators=others):
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops):
                    return TensorKind.host
                return _joined(*map(self.kind, [left, *others]))
            case ast.UnaryOp(op=op, operand=operand):
                return TensorKind.host if isinstance(op, ast.Not) else self.kind(operand)
            case ast.IfExp(body=body, orelse=orelse):
                return _either(self.kind(body), self.kind(orelse))
            case ast.Subscript(value=value):
                return TensorKind.host if _is_size(value) else self.kind(value)
            case ast.Attribute(value=value, attr=name):
                if name in _HOST_RESULT:
                    return TensorKind.host
                return self.kind(value) if name in _TENSOR_ATTRIBUTES else TensorKind.unknown
            case ast.Call():
                return self._of_call(expression)
            case _:
                return TensorKind.unknown

    def _of_call(self, call: ast.Call) -> TensorKind:
        module = self._scope.submodule(call)
        if module:
            name = module.rpartition(".")[2]
            known = module.startswith("torch.nn.") and name not in _SEVERAL_MODULES
            return (TensorKind.reduced if name.endswith("Loss") else TensorKind.tensor) if known else TensorKind.unknown
        if isinstance(call.func, ast.Name) and call.func.id in ("int", "float", "bool", "len", "str", "range"):
            return TensorKind.host
        name = self._scope.function(call)
        origin = self._scope.origin(call.func) or ""
        operand = self._scope.operand(call)
        if name in _HOST_RESULT:
            return TensorKind.host
        if not name or name in _SEVERAL or (not origin and not self.is_tensor(operand)):
            return TensorKind.unknown
        if origin and not (origin.count(".") == 1 or origin.startswith(("torch.nn.functional.", "torch.special."))):
            return TensorKind.tensor if origin.startswith(("torch.fft.", "torch.linalg.")) else TensorKind.unknown
        if origin and name[:1].isupper():
            return TensorKind.unknown
        return self._of_operation(name, call, operand)

    def _of_operation(self, name: str, call: ast.Call, operand: ast.expr | None) -> TensorKind:
        given = len(call.args) - (call.args[:1] == [operand])
        if name in _REDUCTIONS and operand is not None:
            if name in ("max", "min") and (given or call.keywords):
                elementwise = given == 1 and self.is_tensor(call.args[-1])
                return TensorKind.tensor if elementwise else TensorKind.unknown
            return TensorKind.reduced
        if name in _SMALL and not self.is_tensor(operand):
            return TensorKind.reduced
        if name in _LOSSES:
            reduced = all(item.arg != "reduction" for item in call.keywords)
            return TensorKind.reduced if reduced else TensorKind.tensor
        if operand is not None and self.kind(operand) is TensorKind.reduced:
            return TensorKind.reduced
        return TensorKind.tensor

    def _parameters(self, method: Function) -> dict[str, TensorKind]:
        arguments = [*method.args.posonlyargs, *method.args.args][1:] + method.args.kwonlyargs
        used, plain = self._used_as_tensors(method), _with_plain_default(method)
        kinds = {}
        for one in arguments:
            if one.arg in plain:
                kinds[one.arg] = TensorKind.host
                continue
            annotation = ast.unparse(one.annotation) if one.annotation is not None else ""
            if annotation:
                words = set(re.findall(r"\w+", annotation))
                tensor = "Tensor" in words and not words & _CONTAINERS
                kinds[one.arg] = (
                    TensorKind.tensor if tensor else TensorKind.host if "Tensor" not in words else TensorKind.unknown
                )
            elif one.arg in used:
                kinds[one.arg] = TensorKind.tensor
        return kinds

    def _used_as_tensors(self, method: Function) -> set[str]:
        """Returns the names that the method uses in a way that only tensors allow."""
        used = set()
        for node in walk_body(method):
            if isinstance(node, ast.Attribute) and node.attr in _TELLING and isinstance(node.value, ast.Name):
                used.add(node.value.id)
            elif isinstance(node, ast.Call):
                origin = self._scope.origin(node.func) or ""
                plain = origin.startswith("torch.") and origin.rpartition(".")[2] not in _HOST_RESULT | _NOT_TELLING
                made = self._scope.submodule(node).startswith("torch.nn.")
                if (plain or made) and node.args and isinstance(node.args[0], ast.Name):
                    used.add(node.args[0].id)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                used |= {side.id for side in (node.left, node.right) if isinstance(side, ast.Name)}
        return used

    def _read(self, method: Function) -> None:
        seen: dict[str, TensorKind] = dict(self._parameters(method))
        for statement in statements(method):
            for target, value in _assignments(statement):
                self._note(target, value, seen)
            if isinstance(statement, (ast.For, ast.With)):
                for name in _bound(statement):
                    seen[name] = self.names[name] = TensorKind.unknown
            if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
                kind = self._element(statement.iter)
                seen[statement.target.id] = self.names[statement.target.id] = kind

    def _element(self, iterated: ast.expr) -> TensorKind:
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "range":
            return TensorKind.host
        if isinstance(iterated, ast.Call) and self._scope.function(iterated) in ("unbind", "split", "chunk"):
            return TensorKind.tensor if self.is_tensor(self._scope.operand(iterated)) else TensorKind.unknown
        return TensorKind.tensor if self.is_large(iterated) else TensorKind.unknown

    def _note(self, target: ast.expr, value: ast.expr | None, seen: dict[str, TensorKind]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            whole = value is not None and _is_size(value)
            several = isinstance(value, ast.Call) and self._scope.function(value) in ("split", "chunk", "unbind")
            several = several and isinstance(value, ast.Call) and self.is_tensor(self._scope.operand(value))
            inner = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for index, one in enumerate(target.elts):
                if isinstance(one, ast.Name):
                    kind = TensorKind.host if whole else TensorKind.tensor if several else TensorKind.unknown
                    self._set(one.id, self.kind(inner[index]) if inner else kind, seen)
        elif isinstance(target, ast.Name) and value is not None and not _is_none(value):
            self._set(target.id, self.kind(value), seen)

    def _set(self, name: str, kind: TensorKind, seen: dict[str, TensorKind]) -> None:
        known = seen.get(name, kind)
        seen[name] = self.names[name] = known if known is kind else _either(known, kind)


def _with_plain_default(method: Function) -> set[str]:
    """Returns the parameters whose default is a literal other than None (a number, a string or a bool), whatever
    their annotation is."""
    positional = [*method.args.posonlyargs, *method.args.args]
    defaults = method.args.defaults
    pairs = [*zip(positional[len(positional) - len(defaults) :], defaults, strict=True)]
    keyword = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    pairs += [(one, default) for one, default in keyword if default is not None]
    return {one.arg for one, default in pairs if isinstance(default, ast.Constant) and default.value is not None}


#: Functions of torch whose first argument may be no tensor.
_NOT_TELLING = frozenset(
    """cat stack concat hstack vstack zeros ones empty full arange linspace randn rand eye tensor as_tensor
    from_numpy randint randperm device checkpoint compile cond where full_like""".split()
)


def walk_body(method: Function) -> list[ast.AST]:
    return [node for statement in method.body for node in walk(statement)]


def _joined(*kinds: TensorKind) -> TensorKind:
    """Returns the kind of an operation's result from the kinds of its operands: a tensor if one of them is a tensor."""
    for kind in (TensorKind.tensor, TensorKind.unknown, TensorKind.reduced):
        if kind in kinds:
            return kind
    return TensorKind.host


def _either(one: TensorKind, other: TensorKind) -> TensorKind:
    if {one, other} == {TensorKind.tensor, TensorKind.reduced}:
        return TensorKind.reduced
    return one if one is other else TensorKind.unknown


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_size(value: ast.expr) -> bool:
    """Whether an expression is `x.shape` or `x.size()`, or a slice of one of these."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        value = value.value
    function = value.func if isinstance(value, ast.Call) else value
    return isinstance(function, ast.Attribute) and function.attr in ("shape", "size") and not is_self(function.value)


def _assignments(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr | None]]:
    if isinstance(statement, ast.Assign):
        return [(target, statement.value) for target in statement.targets]
    if isinstance(statement, ast.AnnAssign):
        return [(statement.target, statement.value)]
    return []


def _bound(statement: ast.For | ast.With) -> list[str]:
    targets = [statement.target] if isinstance(statement, ast.For) else [item.optional_vars for item in statement.items]
    return [
        node.id for target in targets if target is not None for node in ast.walk(target) if isinstance(node, ast.Name)
    ]
