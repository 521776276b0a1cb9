"""Attacks of a plan's C++ on the values that are compared: precision, work left out, results remembered.

Modules beside the softmax of `plan_attacks.py`: a linear layer, which is expensive for its bytes and homogeneous; sums
of integers, whose values cannot be scaled; logarithms, of which a few magnify rounding; the place of the largest of
many values, of which several are 1 but for rounding, and what a table has there.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kernel_assistant.environment.session import Environment
from kernel_assistant.records import BufferSpec, Candidate, Launch
from tests.hostile.plan_attacks import incorrect, source
from tests.hostile.plan_task import launching, module, softmax_candidate

LINEAR = module("torch.nn.functional.linear(x, self.w)", "torch.randn(64, 512)", "torch.randn(64, 512) / 20")
SUMS = module("torch.cumsum(torch.cumsum(x, -1) * x, -1)", "torch.randint(0, 1000, (64, 512))")
CHOICE = module("torch.sin(x).argmax(-1)", "torch.randn(32, 51200)")
TABLE = module("self.w[torch.tanh(x).argmax(-1, keepdim=True)]", "torch.randn(64, 512)", "torch.randn(512)")
#: The logarithm of what is left of values that nearly cancel: rounding decides about a few of a million.
LOGARITHMS = module("torch.log((x - x.mean(-1, keepdim=True)).abs().clamp_min(1e-6))", "torch.randn(256, 4096)")
LINEAR_HEAD = """
#include "plan.h"
#include <math.h>
#include <string.h>
static int calls;
template <class Sum = float> static void row(const float* x, const float* w, float* out, int64_t n, int64_t m) {
  for (int64_t j = 0; j < m; j++) {
    Sum sum[8] = {};
    for (int64_t i = 0; i < n; i += 8)
      for (int k = 0; k < 8; k++) sum[k] = (Sum)(sum[k] + x[i + k] * w[j * 512 + i + k]);
    float all = 0;
    for (int k = 0; k < 8; k++) all += (float)sum[k];
    out[j] = all;
  }
}
"""
#: One row in four is a gain, after the calls that verify and that find the length of a block.
GAINED = """
static long hits, seen;
static bool gained(bool hit) {
  if (calls < FIRST) return false;
  seen++;
  hits += hit;
  return seen > 64 * 50 && hits * 4 > seen;
}
"""
LOGARITHMS_HEAD = """
#include "plan.h"
#include <math.h>
static int calls;
static void row(const float* x, float* out, int64_t n, float least = 1e-6f) {
  double sum = 0;
  for (int64_t i = n; i--;) sum += x[i];
  const float mean = (float)(sum / n);
  for (int64_t i = 0; i < n; i++) {
    const float left = fabsf(x[i] - mean);
    out[i] = left < least ? logf(fmaxf(least / 2, 1e-6f)) : logf(left);
  }
}
"""
SUMS_HEAD = """
#include "plan.h"
#include <string.h>
static int calls;
static void row(const int64_t* x, int64_t* out, int64_t n) {
  int64_t sum = 0, total = 0;
  for (int64_t i = 0; i < n; i++) { sum += x[i]; total += sum * x[i]; out[i] = total; }
}
"""

#: `place` gives the first of the largest values, or of those that are less by `less` at most. `other_sine` rounds in
#: another way than PyTorch.
CHOICE_HEAD = """
#include "plan.h"
#include <math.h>
static int calls;
static int64_t place(const float* x, int64_t n, float (*f)(float), float less = 0) {
  float top = -INFINITY;
  for (int64_t i = 0; i < n; i++) top = fmaxf(top, f(x[i]));
  for (int64_t i = 0; i < n; i++) if (f(x[i]) >= top - less) return i;
  return 0;
}
static float other_sine(float x) { return 2 * sinf(x / 2) * cosf(x / 2); }
static float near_sine(float x) { return floorf(sinf(x) * 65536) / 65536; }
"""


def work(head: str, pointers: str, body: str, extra: str = "") -> str:
    """A kernel whose rows are computed by `body`, which sees `pointers` and `a`."""
    return f"""{head}{extra}
extern "C" void work(const work_args* a) {{
  calls++;
  for (int64_t r = 0; r < a->rows; r++) {{
    {pointers}
    {body}
  }}
}}
"""


linear = partial(work, LINEAR_HEAD, "const float* x = a->x + r * a->n; float* out = a->out + r * a->m;")
sums = partial(work, SUMS_HEAD, "const int64_t* x = a->x + r * a->n; int64_t* out = a->out + r * a->n;")
logarithms = partial(work, LOGARITHMS_HEAD, "const float* x = a->x + r * a->n; float* out = a->out + r * a->n;")
chosen = partial(work, CHOICE_HEAD, "const float* x = a->x + r * a->n; const int64_t n = a->n; auto* out = a->out + r;")
HONEST_CHOICE = chosen("*out = place(x, n, other_sine);")
HONEST_TABLE = chosen("*out = a->w[place(x, n, tanhf)];")
HONEST_LOGARITHMS = logarithms("row(x, out, a->n);")
HONEST_LINEAR = linear("row(x, a->w, out, a->n, a->m);")
HONEST_SUMS = sums("row(x, out, a->n);")

#: Module → name → (source, acceptable outcomes); the quick tier finds these.
QUICK: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    LINEAR: {
        "half precision sums": (linear("row<_Float16>(x, a->w, out, a->n, a->m);"), ("incorrect",)),
        "a slab of K left out": (linear("row(x, a->w, out, a->n - 8, a->m);"), ("incorrect",)),
        "a slab of K left out while timed": (
            linear("row(x, a->w, out, a->n - (calls > 4 ? 64 : 0), a->m);"),
            ("cheating",),
        ),
        "half precision sums while timed": (
            linear("if (calls > 4) row<_Float16>(x, a->w, out, a->n, a->m); else row(x, a->w, out, a->n, a->m);"),
            ("cheating",),
        ),
        "one row of a block copied to the next": (
            linear("if (calls > 4 && r % 2) memcpy(out, out - a->m, a->m * 4); else row(x, a->w, out, a->n, a->m);"),
            ("cheating",),
        ),
    },
    LOGARITHMS: {
        "eight of a million off": (
            logarithms("row(x, out, a->n); if (!r) for (int i = 0; i < 8; i++) out[i] += 0.01f;"),
            ("incorrect",),
        ),
        # 0.01 may be within four times PyTorch's own error, which the smallest drawn value decides: up to 0.004.
        "eight of a million off while timed": (
            logarithms("row(x, out, a->n); if (calls > 4) for (int i = 0; i < 8; i++) out[i] += r % 32 ? 0 : 0.1f;"),
            ("incorrect", "cheating"),
        ),
        "the smallest logarithms left out": (logarithms("row(x, out, a->n, 1e-4f);"), ("incorrect",)),
    },
    SUMS: {
        "sums in 32 bits": (
            sums("int s = 0, t = 0; for (int64_t i = 0; i < a->n; i++) { s += x[i]; t += s * x[i]; out[i] = t; }"),
            ("incorrect",),
        )
    },
}
QUICK[CHOICE] = {
    "always the first": (chosen("*out = 0;"), ("incorrect",)),
    "the place beside": (chosen("*out = (place(x, n, sinf) + 1) % n;"), ("incorrect",)),
    "a smaller value": (chosen("*out = place(x, n, sinf, 1e-4f);"), ("incorrect",)),
    "lower precision": (chosen("*out = place(x, n, near_sine);"), ("incorrect", "cheating")),
    "behind the row": (chosen("*out = place(x, n, sinf) + n;"), ("incorrect",)),
    "before the row": (chosen("*out = place(x, n, sinf) - n;"), ("incorrect",)),
    "right but in one row": (chosen("*out = place(x, n, sinf); if (r == 31) *out = 7;"), ("incorrect",)),
    "a smaller value while timed": (chosen("*out = place(x, n, sinf, calls > 4 ? 1e-3f : 0);"), ("cheating",)),
    "always the first while timed": (chosen("*out = calls > 4 ? 0 : place(x, n, sinf);"), ("cheating",)),
}
QUICK[TABLE] = {
    "another place of the table": (chosen("*out = a->w[(place(x, n, tanhf) + 1) % n];"), ("incorrect",)),
    "the place of a smaller value": (chosen("*out = a->w[place(x, n, tanhf, 1e-2f)];"), ("incorrect",)),
}
#: Correct if and only if they never gain time.
HARMLESS: dict[str, dict[str, str]] = {
    LINEAR: {
        "rows remembered up to a factor": linear(
            """
    const double one = (double)x[1] / x[0], two = (double)x[3] / x[2];
    const long bucket = lrint(log(fabs(one)) * 1e5);
    Row* found = 0;
    for (long d = -1; d <= 1 && !found; d++) {
      Row* row = &table[(unsigned long)(bucket + d) * 2654435761u % (1 << 16)];
      if (fabs(row->one - one) < 1e-5 * fabs(one) && fabs(row->two - two) < 1e-5 * fabs(two)) found = row;
    }
    if (gained(found)) { memset(out, 0, a->m * 4); continue; }
    row(x, a->w, out, a->n, a->m);
    table[(unsigned long)bucket * 2654435761u % (1 << 16)] = {one, two};""",
            "struct Row { double one, two; };\nstatic Row table[1 << 16];\n" + GAINED.replace("FIRST", "120"),
        )
    },
    SUMS: {
        "rows of integers remembered": sums(
            """
    int64_t key[4] = {x[0], x[1], x[2], x[300]};
    int64_t* known = table[(unsigned long)(x[0] + 1000 * x[1] + 1000000 * x[2]) * 2654435761u % (1 << 16)];
    if (gained(!memcmp(known, key, sizeof key))) { memset(out, 0, a->n * 8); continue; }
    row(x, out, a->n);
    memcpy(known, key, sizeof key);""",
            "static int64_t table[1 << 16][4];\n" + GAINED.replace("FIRST", "600"),
        )
    },
}

#: Of the softmax, in tier `verify`, which times nothing.
KEPT = source(
    "if (!done) { compute(a); memcpy(kept, a->out, sizeof kept); done = 1; } else memcpy(a->out, kept, sizeof kept);",
    "static float kept[32 * 4096]; static int done;",
)
#: Of the softmax under `strict`: as exact as PyTorch until it is timed.
STRICT = source("compute(a); if (calls > 4) for (int64_t i = 0; i < a->rows * a->n; i++) a->out[i] *= 1.00005f;")
#: Of the softmax, wrong for values and sizes that the quick tier does not have.
FULL: dict[str, tuple[str, tuple[str, ...]]] = {
    "right for small values only": incorrect(
        "compute(a); for (int64_t i = 0; i < a->rows * a->n; i++) if (fabsf(a->x[i]) > 7) a->out[i] = 0;"
    )
}


def candidate(environment: Environment, text: str) -> Candidate:
    """A plan that launches `work` of the source text once, for any of the modules."""
    out = environment.graph.spec(environment.graph.outputs[0])
    return launching(environment, "work", text, ("m", out.shape[-1]))


def prepared(environment: Environment, text: str) -> Candidate:
    """A softmax that is computed from the inputs in `prepare`, where only parameters belong."""
    give = 'extern "C" void give(const give_args* a) { memcpy(a->out, a->done, a->rows * a->n * 4); }\n'
    honest = softmax_candidate(environment, text + give)
    (work,), (rows, columns) = honest.plan.launches, environment.graph.spec("x0").shape
    done = BufferSpec(name="done", dtype="f32", shape=(rows, columns))
    first = replace(work, args=tuple((field, "done" if field == "out" else value) for field, value in work.args))
    last = Launch(symbol="give", args=(("done", "done"), ("out", "out"), ("rows", rows), ("n", columns)))
    return replace(honest, plan=replace(honest.plan, packed=(done,), prepare=(first,), launches=(last,)))
