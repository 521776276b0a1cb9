"""The rule KA002: a chain of pointwise operations, each of which reads and writes its tensor in memory in eager
mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_assistant.source.lint.classes import blocks
from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA002"
NAME = "fusable pointwise chain"
#: The shortest chain for a hint. Shorter ones are common and rarely matter.
LEAST = 4

_FUNCTIONS = frozenset(
    """abs add addcdiv addcmul atan atan2 celu ceil clamp clamp_min clamp_max cos cosh div elu erf erfc exp exp2 expm1
    floor fmod gelu hardsigmoid hardswish hardtanh leaky_relu lerp log log10 log1p log2 logical_and logical_not
    logical_or logsigmoid masked_fill maximum minimum mish mul neg pow reciprocal relu relu6 remainder round rsqrt
    rsub selu sigmoid sign silu sin sinh softplus softsign sqrt square sub tan tanh tanhshrink threshold where xlogy
    """.split()
)
_MODULES = frozenset(
    """CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid
    Softplus Softshrink Softsign Tanh Tanhshrink""".split()
)


@dataclass
class _Chain:
    first: ast.expr
    last: ast.expr
    nodes: set[int] = field(default_factory=set)


def find(method: Method) -> Iterator[RuleHint]:
    """Yields a hint for each chain of at least `LEAST` operations; a chain may continue through variables of the same
    block. Yields nothing for a compiled class."""
    if method.scope.compiled:
        return
    for block in blocks(method.node.body):
        for chain in _Block(method).chains(block):
            if len(chain.nodes) >= LEAST:
                count = len(chain.nodes)
                yield RuleHint(
                    chain.first,
                    f"{count} pointwise operations in a row are {count} passes over memory in eager mode; "
                    "one kernel, or torch.compile, makes them one",
                    chain.last,
                )


class _Block:
    """Finds the chains of pointwise operations in statements that run one after another."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._made: dict[str, _Chain] = {}
        self._chains: list[_Chain] = []

    def chains(self, block: list[ast.stmt]) -> list[_Chain]:
        for statement in block:
            value, name = _value(statement)
            chain = self._walk(value) if value is not None else None
            if name:
                self._made.pop(name, None)
                if chain is not None:
                    self._made[name] = chain
            elif value is None:
                for node in ast.walk(statement):  # names assigned in an inner block have unknown values from here on
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        self._made.pop(node.id, None)
        return self._chains

    def _walk(self, node: ast.expr) -> _Chain | None:
        """Returns the chain whose last operation is `node` (None if `node` is not pointwise), and records the chains
        found inside `node`."""
        if isinstance(node, ast.Name):
            return self._made.get(node.id)
        operands = _operands(node) if self._is_pointwise(node) else None
        if operands is None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._walk(child)
                elif isinstance(child, ast.keyword):
                    self._walk(child.value)
            return None
        parts = [part for part in map(self._walk, operands) if part is not None]
        chain = parts[0] if parts else _Chain(first=node, last=node)
        if not parts:
            self._chains.append(chain)
        for other in parts[1:]:
            self._merge(chain, other)
        chain.nodes.add(id(node))
        chain.last = node
        if (node.lineno, node.col_offset) < (chain.first.lineno, chain.first.col_offset):
            chain.first = node
        return chain

    def _merge(self, chain: _Chain, other: _Chain) -> None:
        if other is chain:
            return
        chain.nodes |= other.nodes
        if (other.first.lineno, other.first.col_offset) < (chain.first.lineno, chain.first.col_offset):
            chain.first = other.first
        self._chains.remove(other)
        for name, made in self._made.items():
            if made is other:
                self._made[name] = chain

    def _is_pointwise(self, node: ast.expr) -> bool:
        tensors, scope = self._method.tensors, self._method.scope
        if isinstance(node, ast.BinOp):
            return not isinstance(node.op, ast.MatMult) and tensors.is_large(node)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, (ast.USub, ast.Invert)) and tensors.is_large(node)
        if isinstance(node, ast.Compare):
            return tensors.is_large(node)
        if not isinstance(node, ast.Call) or not tensors.is_large(node):
            return False
        module = scope.submodule(node)
        if module:
            return module.startswith("torch.nn.") and module.rpartition(".")[2] in _MODULES
        return scope.function(node) in _FUNCTIONS


def _operands(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=function, args=args, keywords=keywords):
            owner = [function.value] if isinstance(function, ast.Attribute) else []
            return [*owner, *args, *(item.value for item in keywords)]
        case _:
            return []


def _value(statement: ast.stmt) -> tuple[ast.expr | None, str]:
    """Returns the expression of a simple statement, and the name to which it is assigned ("" for none). Returns (None,
    "") for other statements."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return value, name
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return value, name
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            return ast.copy_location(ast.BinOp(left=target, op=op, right=value), statement), name
        case ast.Return(value=value) | ast.Expr(value=value) | ast.Assign(value=value):
            return value, ""
        case _:
            return None, ""
