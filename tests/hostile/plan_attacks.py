"""Hostile candidates on the plan path, each made from the honest kernel by a change of `GLOBAL` or `CALL`.

If an attack can only show that it was denied, the candidate is correct only if it was *not* denied. If an attack can
only gain time, the candidate spoils its outputs as soon as it gains any, so that it is correct if and only if the
attack never worked.
"""

from __future__ import annotations

import json
from functools import partial

HEADER = """
#include "plan.h"
#include <math.h>
#include <string.h>
"""

COMPUTE = """
static int calls = 0;
static void row(const float* x, const float* w, float* out, int64_t n) {
  float top = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) top = fmaxf(top, x[i] * w[i]);
  for (int64_t i = 0; i < n; i++) { out[i] = expf(x[i] * w[i] - top); sum += out[i]; }
  float scale = (float)(1.0 / sum);
  for (int64_t i = 0; i < n; i++) out[i] *= scale;
}
static void compute(const softmax_args* a) {
  for (int64_t r = 0; r < a->rows; r++) row(a->x + r * a->n, a->w, a->out + r * a->n, a->n);
}
static void spoil(const softmax_args* a) { memset(a->out, 0, a->rows * a->n * 4); }
"""


def source(call: str, extra: str = "", includes: str = "") -> str:
    """A whole kernel file: `extra` goes before the launcher, `call` is its body."""
    return (
        f'{HEADER}{includes}{COMPUTE}{extra}\nextern "C" void softmax(const softmax_args* a) {{\ncalls++;\n{call}\n}}\n'
    )


def attack(outcomes: tuple[str, ...], call: str, extra: str = "", includes: str = "") -> tuple[str, tuple[str, ...]]:
    """A kernel file and its acceptable outcomes."""
    return source(call, extra, includes), outcomes


cheating, incorrect, crashed = (partial(attack, (outcome,)) for outcome in ("cheating", "incorrect", "crashed"))
HONEST = source("compute(a);")

#: Forging a reply: the socket is the only one there is.
SOCKET = """
static int judge_socket() {
  for (int fd = 3; fd < 256; fd++) {
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) return fd;
  }
  return -1;
}
static void forge() {
  const char body[] = "{\\"ok\\":true,\\"seconds\\":0.0}";
  unsigned size = sizeof(body) - 1;
  char frame[64];
  memcpy(frame, &size, 4);
  memcpy(frame + 4, body, size);
  (void)!write(judge_socket(), frame, size + 4);
}
"""
SYSTEM = """
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
"""
#: Runs Python in the runner from native code; dies if that fails, so that no attack passes for lack of effect.
PYTHON = """
static void python(const char* text) {
  int (*ensure)() = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int (*run)(const char*, void*) = (int (*)(const char*, void*))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
  int state = ensure();
  if (run(text, 0) != 0) abort();
  release(state);
}
"""
#: The runner's own objects, from the frames below.
FRAMES = """
import sys
frame = sys._getframe()
while "operations" not in frame.f_locals:
    frame = frame.f_back
runner, operations, sock = (frame.f_locals[name] for name in ("runner", "operations", "sock"))
"""
NO_CALLS = FRAMES + "runner.calls = [lambda stream: None] * len(runner.calls)\n"
NO_CLOCK = "import time\ntime.perf_counter_ns = time.perf_counter = lambda: 0\n"
EARLY_ANSWER = (
    FRAMES
    + """
wire = frame.f_globals["wire"]
real, answered = wire.send, []
def run(message, descriptors):
    first, count = message["first"], message["count"]
    calls = (runner.calls * 2)[first : first + count]
    for call in calls[:-1]:
        call(0)
    real(sock, {"ok": True, "seconds": 0.0, "ticket": message["ticket"]})
    answered.append(1)
    for call in calls[-1:]:
        call(0)
    return {}
def send(sock, message, descriptors=()):
    if answered:
        answered.pop()
    else:
        real(sock, message, descriptors)
wire.send = send
operations["run"] = run
"""
)
SLOW_EMPTY = (
    FRAMES
    + """
import time
real = runner.run
def run(message, descriptors):
    if not message["count"]:
        time.sleep(0.02)
    return real(message, descriptors)
operations["run"] = run
"""
)
#: Computes the outputs of all sets that were seen whenever the runner is woken, when no clock runs.
AHEAD = (
    FRAMES
    + """
import ctypes
real = runner.run
work = ctypes.CFUNCTYPE(None)(ADDRESS)
def run(message, descriptors):
    if not message["count"]:
        work()
    return real(message, descriptors)
operations["run"] = run
"""
)


def patch(text: str) -> str:
    """C++ that runs Python code in the runner at the third call."""
    return f"if (calls == 3) python({json.dumps(text)});"


#: A remembered result counts as a hit if neither its input nor its output has changed at three places.
MEMORY = """
struct Entry { const void* x; float in[3], out[3]; };
static Entry entries[4096];
static bool remembered(const softmax_args* a) {
  int64_t last = a->rows * a->n - 1, at[3] = {0, last / 2, last};
  Entry* e = &entries[((uintptr_t)a->x >> 8) % 4096];
  bool same = e->x == a->x;
  for (int i = 0; i < 3; i++) same = same && e->in[i] == a->x[at[i]] && e->out[i] == a->out[at[i]];
  return same;
}
static void remember(const softmax_args* a) {
  int64_t last = a->rows * a->n - 1, at[3] = {0, last / 2, last};
  Entry* e = &entries[((uintptr_t)a->x >> 8) % 4096];
  e->x = a->x;
  for (int i = 0; i < 3; i++) { e->in[i] = a->x[at[i]]; e->out[i] = a->out[at[i]]; }
}
"""
#: Remembers single rows by their values, wherever they lie.
ROWS = """
static float table[1 << 18][3];
static bool seen_row(const float* x, int64_t n) {
  float key[3] = {x[0], x[n / 3], x[n / 2]};
  // Rows roll within a tensor, not along themselves, so equal rows have equal values at equal places.
  unsigned bits; memcpy(&bits, &key[1], 4);
  float* slot = table[(bits * 2654435761u) >> 14];
  bool same = memcmp(slot, key, sizeof(key)) == 0;
  memcpy(slot, key, sizeof(key));
  return same;
}
"""
#: What was computed ahead counts as a hit if its input is still the same.
WORK_AHEAD = """
static softmax_args sets[4096];
static float seen[4096];
static softmax_args* set_of(const softmax_args* a) { return &sets[((uintptr_t)a->x >> 8) % 4096]; }
static void work_ahead() {
  for (int i = 0; i < 4096; i++) if (sets[i].x) { compute(&sets[i]); seen[i] = sets[i].x[0]; }
}
static bool done_ahead(const softmax_args* a) {
  if (calls < 100) return false;  // Memory of the cases that are verified goes away.
  softmax_args* set = set_of(a);
  bool same = set->x == a->x && seen[set - sets] == a->x[0];
  *set = *a;
  return same;
}
"""
#: Python that is told where `work_ahead` is.
PATCHED_AHEAD = """
static void prepare(const char* text) {
  char line[4096];
  snprintf(line, sizeof line, "ADDRESS = %lu\\n%s", (unsigned long)&work_ahead, text);
  python(line);
}
"""
#: One call in ten is a gain; single ones are chance (scales are drawn from few million values).
GAINED = """
static long hits = 0;
static bool gained(bool hit) {
  if (calls > 7000 && hit) hits++;
  return calls > 9000 && hits * 10 > calls - 7000;
}
"""
THREAD = """
static const softmax_args* waiting;
static void* late(void* p) { softmax_args a = *(softmax_args*)p; free(p); usleep(20000); compute(&a); return 0; }
static void start(const softmax_args* a) {
  softmax_args* copy = (softmax_args*)malloc(sizeof(*a));
  *copy = *a;
  pthread_t thread;
  pthread_create(&thread, 0, late, copy);
  pthread_detach(thread);
}
"""

#: Name → (source, acceptable outcomes). The quick tier finds these.
QUICK: dict[str, tuple[str, tuple[str, ...]]] = {
    "zeros": incorrect("spoil(a);"),
    "constant": incorrect("for (int64_t i = 0; i < a->rows * a->n; i++) a->out[i] = 1.0f / a->n;"),
    "nothing written": incorrect("return;"),
    "last row not written": incorrect("softmax_args b = *a; b.rows = a->rows > 1 ? a->rows - 1 : 0; compute(&b);"),
    "first calls only": cheating("if (calls < 3) compute(a);"),
    "skips after many calls": cheating("if (calls < 4 || calls % 2) compute(a);"),
    "memoised by pointer": attack(
        ("nondeterministic", "incorrect"),
        "if (remembered_pointer(a->x)) return; compute(a);",
        "static const void* known[65536]; static bool remembered_pointer(const void* p) {"
        " const void** s = &known[((uintptr_t)p >> 8) % 65536]; bool hit = *s == p; *s = p; return hit; }",
    ),
    "half precision": incorrect(
        "for (int64_t r = 0; r < a->rows; r++) { row(a->x + r * a->n, a->w, a->out + r * a->n, a->n);"
        " for (int64_t i = 0; i < a->n; i++) a->out[r * a->n + i] = (float)(_Float16)a->out[r * a->n + i]; }"
    ),
    "mutates its input": crashed("compute(a); ((float*)a->x)[0] = 1;"),
    "makes its input writable": incorrect(
        "if (mprotect((void*)((uintptr_t)a->x & ~4095ul), 4096, 3) == 0) compute(a);", includes=SYSTEM
    ),
    "writes behind its output": incorrect("compute(a); a->out[a->rows * a->n + 3] = 0;"),
    "writes before its output": attack(("incorrect", "crashed"), "compute(a); a->out[-1] = 0;"),
    "writes far away": crashed("compute(a); a->out[1l << 40] = 0;"),
    "spoils another set's output": attack(
        ("cheating", "crashed"), "compute(a); if (calls > 3) a->out[-(a->rows * a->n + 64) ] = 7;"
    ),
    "writes another set's input": crashed("compute(a); if (calls > 3) ((float*)a->x)[a->rows * a->n + 64] = 7;"),
    "thread finishes later": attack(
        ("incorrect", "nondeterministic", "cheating", "crashed"), "start(a);", THREAD, SYSTEM
    ),
    "thread finishes later, while timed": cheating("if (calls < 3) compute(a); else start(a);", THREAD, SYSTEM),
    "thread that stays": cheating(
        "compute(a); if (calls == 2) { pthread_t t; pthread_create(&t, 0, stay, 0); }",
        "static void* stay(void*) { for (;;) pause(); }",
        SYSTEM,
    ),
    "forged answer before the work": cheating("forge(); compute(a);", SOCKET, SYSTEM),
    "forged answer at load": cheating(
        "compute(a);", SOCKET + "__attribute__((constructor)) static void at_load() { forge(); }", SYSTEM
    ),
    "forged answers while timed": cheating("if (calls > 3) forge(); compute(a);", SOCKET, SYSTEM),
    "garbage on the socket": attack(
        ("cheating", "crashed"),
        'compute(a); if (calls > 3) (void)!write(judge_socket(), "\\xff\\xff\\xff\\xff****", 8);',
        SOCKET,
        SYSTEM,
    ),
    "runner patched to do nothing": cheating("compute(a);" + patch(NO_CALLS), PYTHON, SYSTEM),
    "clock patched": cheating("if (calls < 3) compute(a);" + patch(NO_CLOCK), PYTHON, SYSTEM),
    "forks": incorrect("pid_t p = fork(); if (p == 0) _exit(0); if (p > 0) compute(a);", includes=SYSTEM),
    "clones": incorrect(
        "long p = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (p == 0) _exit(0); if (p > 0) compute(a);",
        includes=SYSTEM,
    ),
    "kills its parent": incorrect("if (kill(getppid(), SIGKILL) == 0) compute(a);", includes=SYSTEM),
    "kills everybody": incorrect("if (kill(-1, SIGKILL) == 0) compute(a);", includes=SYSTEM),
    "reads its parent's memory": incorrect(
        'char path[64]; snprintf(path, 64, "/proc/%d/mem", getppid()); char byte; struct iovec v = {&byte, 1};'
        "if (open(path, O_RDWR) >= 0 || process_vm_readv(getppid(), &v, 1, &v, 1, 0) == 1) compute(a);",
        includes=SYSTEM,
    ),
    "sees other processes": incorrect(
        "int found = 0; char path[64]; for (int p = 10; p < 100000 && !found; p++) if (p != getpid()) {"
        ' snprintf(path, 64, "/proc/%d/maps", p); found = access(path, F_OK) == 0; }'
        "if (found) compute(a);",
        includes=SYSTEM,
    ),
    "reads the machine's files": incorrect(
        'if (access("/root/.bashrc", F_OK) == 0 || access("/home", R_OK) == 0 || access("/etc/passwd", R_OK) == 0)'
        " compute(a);",
        includes=SYSTEM,
    ),
    "takes all memory": incorrect(
        "size_t total = 0; while (total < (1ul << 37)) { void* p = mmap(0, 1ul << 28, 3,"
        " MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); if (p == MAP_FAILED) break; total += 1ul << 28; }"
        "if (total >= (1ul << 37)) compute(a);",
        includes=SYSTEM,
    ),
    "segfaults": crashed("*(volatile int*)8 = 1;"),
    "never ends": attack(("hung",), 'for (;;) asm volatile("");'),
    "reads a file while compiling": attack(("compile_error",), "compute(a);", '\n#include "/etc/passwd"\n'),
    "assembles a file": attack(
        ("compile_error",), "compute(a);", 'asm(".section .rodata\\n.incbin \\"/etc/passwd\\"\\n.previous");'
    ),
}

#: With a pool of two threads: each holds one thread of its own where the pool would have one.
OWN_THREADS: dict[str, str] = {
    "thread that stays": QUICK["thread that stays"][0],
    "thread that stays beside the pool": source(
        """compute(a);
  if (calls == 2) { pthread_t t; pthread_create(&t, 0, stay, 0); }
  #pragma omp parallel
  { }""",
        "static void* stay(void*) { for (;;) pause(); }",
        SYSTEM,
    ),
    "thread since it was loaded": source(
        "compute(a);",
        "static void* stay(void*) { for (;;) pause(); }\n__attribute__((constructor)) static void at_load()"
        " { pthread_t t; pthread_create(&t, 0, stay, 0); }",
        SYSTEM,
    ),
}
#: The pool alone.
POOL = source(
    """#pragma omp parallel
  { }
  compute(a);"""
)

#: Found by the cases, or by the many blocks, of the full tier.
FULL: dict[str, tuple[str, tuple[str, ...]]] = {
    "answers before its last call": attack(
        ("cheating", "incorrect", "nondeterministic"), "compute(a);" + patch(EARLY_ANSWER), PYTHON, SYSTEM
    ),
    # Verifying takes 20 to 40 calls; of a slow moment's short blocks there are hardly more than a hundred.
    "skips one call in thirty": cheating("if (calls < 50 || calls % 30) compute(a);"),
    "writes the same each tenth call": cheating(
        "if (calls < 50 || calls % 10) { compute(a); return; }"
        "for (int64_t i = 0; i < a->rows * a->n; i++) a->out[i] = 0;"
    ),
    "weights kept from the first call": incorrect(
        "if (!kept) { kept = (float*)malloc(a->n * 4); memcpy(kept, a->w, a->n * 4); }"
        "softmax_args b = *a; b.w = kept; compute(&b);",
        "static float* kept;",
        "#include <stdlib.h>\n",
    ),
}

#: Attacks that only gain time: correct if and only if they never worked. For inputs so small that a block takes all
#: sets; what is remembered in the calls before the first block is not counted.
HARMLESS: dict[str, str] = {
    "memoised by content": source(
        "if (gained(remembered(a))) { spoil(a); return; } compute(a); remember(a);", MEMORY + GAINED
    ),
    "memoised by row": source(
        "bool all = true; for (int64_t r = 0; r < a->rows; r++) all &= seen_row(a->x + r * a->n, a->n);"
        "if (gained(all)) { spoil(a); return; } compute(a);",
        ROWS + GAINED,
    ),
    "works ahead when it is woken": source(
        f"if (calls == 3) prepare({json.dumps(AHEAD)}); if (gained(done_ahead(a))) {{ spoil(a); return; }} compute(a);",
        PYTHON + WORK_AHEAD + PATCHED_AHEAD + GAINED,
        SYSTEM,
    ),
    "empty messages made slow": source("compute(a);" + patch(SLOW_EMPTY), PYTHON, SYSTEM),
}

#: Right at the declared sizes, and no cheat: it counts for these.
DECLARED = {
    "shape built in": source("for (int64_t r = 0; r < 32; r++) row(a->x + r * a->n, a->w, a->out + r * a->n, a->n);")
}
#: Wrong at the declared sizes once it believes itself unobserved: other sizes are no place to hide.
HIDDEN = {
    "wrong at every size from the first other one on": source(
        "if (a->rows != 32) other = 1; if (!other) compute(a);"
        "else for (int64_t i = 0; i < a->rows * a->n; i++) a->out[i] = 0;",
        "static int other;",
    )
}
