"""Tests that a kernel with one changed constant or operator is correct only if it computes the same."""

from __future__ import annotations

import random
import re

import pytest
import torch

from kernel_assistant.records import Launch, Outcome, Tier
from tests.judge.kernels import buffer, candidate, environment, task
from tests.worker.opened import module_text

FORMULA = "(x * 1.5 + 0.25) * abs(x) - x / 8.0 + max(x, 0.5) * 0.75 - 1.0 * x * x"
TOKENS = re.findall(r"[a-z]+|\d+\.\d+|[-+*/(),]", FORMULA)
MUTANTS = 24

MODULE = module_text(
    "return (x * 1.5 + 0.25) * x.abs() - x / 8.0 + x.clamp(min=0.5) * 0.75 - 1.0 * x * x",
    "torch.randn(64, 128)",
    name="Formula",
)
SOURCE = """#include "plan.h"
#include <math.h>
extern "C" void formula(const formula_args* a) {
  for (int64_t i = 0; i < a->count; i++) {
    const float x = a->x[i];
    a->o[i] = FORMULA;
  }
}
"""


def kernel(tokens: list[str]):
    names = {"abs": "fabsf", "max": "fmaxf"}
    text = " ".join(names.get(token, f"{token}f" if token[0].isdigit() else token) for token in tokens)
    return candidate(
        ("FORMULA", text),
        source=SOURCE,
        inputs=(buffer("x0", "B", "128"),),
        outputs=(buffer("out0", "B", "128"),),
        launches=(Launch(symbol="formula", args=(("x", "x0"), ("o", "out0"), ("count", "B*128"))),),
    )


def value(tokens: list[str], x: torch.Tensor) -> torch.Tensor:
    """The value of the formula in float64, by PyTorch."""
    names = {"x": x, "abs": torch.abs, "max": lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))}
    return eval(" ".join(tokens), {**names, "__builtins__": {}})


def mutants() -> list[list[str]]:
    """Formulas with one change each: another constant, or another operator."""
    dice = random.Random(8128)
    found: list[list[str]] = []
    places = [index for index, token in enumerate(TOKENS) if token[0].isdigit() or token in "+-*/"]
    while len(found) < MUTANTS:
        at = dice.choice(places)
        old = TOKENS[at]
        factor = dice.choice([0.0, 0.5, 0.999, 1.001, 2.0])
        new = repr(float(old) * factor) if old[0].isdigit() else dice.choice([op for op in "+-*/" if op != old])
        mutant = [*TOKENS[:at], new, *TOKENS[at + 1 :]]
        if mutant not in found:
            found.append(mutant)
    return found


@pytest.fixture(scope="module")
def judged(worker, cache):
    """(tokens, evaluation) of the formula itself and of all its mutants."""
    every = [TOKENS, *mutants()]
    with environment(worker, cache, task(MODULE, "Formula")) as opened:
        return list(zip(every, opened.evaluate([kernel(tokens) for tokens in every], Tier.quick), strict=True))


@pytest.mark.builds
def test_the_formula_itself_is_correct(judged):
    assert judged[0][1].outcome is Outcome.correct, judged[0][1].message


def test_a_mutant_is_correct_only_if_it_computes_the_same(judged):
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    want = value(TOKENS, x)
    bound = 2e-4 * (want.abs() + 1)
    for tokens, evaluation in judged[1:]:
        same = bool(((value(tokens, x) - want).abs() <= bound).all())
        assert evaluation.correct is same, (" ".join(tokens), evaluation.message)
        assert same or evaluation.outcome is Outcome.incorrect


def test_some_mutants_are_equal_and_most_are_not(judged):
    caught = sum(not evaluation.correct for _, evaluation in judged[1:])
    assert caught > MUTANTS // 2
