"""Attacks of a plan's C++ on its process: symbols, signals, timers, memory, the state that it leaves behind.

Like those of `plan_attacks.py`: what can only be denied is correct if it was *not* denied, and what can only gain time
spoils its outputs as soon as it gains any.
"""

from __future__ import annotations

from tests.hostile.plan_attacks import GAINED, SOCKET, SYSTEM, WORK_AHEAD, attack, cheating, crashed, incorrect, source

#: Functions of the C library that the interpreter calls; `hooked` is set if one of these is called instead.
INTERPOSED = """
static volatile bool hooked;
extern "C" {
__attribute__((visibility("default"))) int clock_gettime(clockid_t, timespec* t) {
  hooked = true; t->tv_sec = t->tv_nsec = 0; return 0; }
__attribute__((visibility("default"))) ssize_t send(int, const void*, size_t n, int) { hooked = true; return n; }
__attribute__((visibility("default"))) ssize_t write(int, const void*, size_t n) { hooked = true; return n; }
__attribute__((visibility("default"))) ssize_t recvmsg(int, msghdr*, int) { hooked = true; return 0; }
}
"""
HANDLER = """
#include <sys/time.h>
// Works when it is continued for the first two times after a call: it rests, and then it is woken, before it is timed.
static void handler(int) {
  static int before, times;
  times = calls == before ? times + 1 : 1;
  before = calls;
  if (times < 3) work_ahead();
}
static void tick(int) {
  static int next;
  for (int i = 0; i < 64; i++, next = (next + 1) % 4096)
    if (sets[next].x) { compute(&sets[next]); seen[next] = sets[next].x[0]; }
}
static void on(int number) {
  struct sigaction action = {};
  action.sa_handler = number == SIGALRM ? tick : handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, 0);
}
"""
#: The pages of the outputs that the judge has mapped: one set while verifying, many while timing.
ARENA = """
static size_t bytes_mapped(const void* at) {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (!maps) abort();
  size_t from, to, found = 0;
  char line[512];
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%zx-%zx", &from, &to) == 2 && from <= (size_t)at && (size_t)at < to) found = to - from;
  fclose(maps);
  return found;
}
"""
#: Tries every way to its read-only input: the file in memory, a new mapping, the process's own memory.
WRITES_INPUT = """
static bool writes_input(const softmax_args* a) {
  float one = 1;
  int self = open("/proc/self/mem", O_RDWR);
  if (self >= 0 && pwrite(self, &one, 4, (off_t)(uintptr_t)a->x) == 4) return true;
  for (int fd = 3; fd < 256; fd++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    struct stat st;
    if (again < 0 || fstat(again, &st) || !S_ISREG(st.st_mode) || st.st_size < a->rows * a->n * 8) continue;
    void* map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    if (map != MAP_FAILED && !memcmp(map, (char*)a->w, 4096)) return true;
    if (ftruncate(again, 4096) == 0) return true;
  }
  return false;
}
"""

QUICK: dict[str, tuple[str, tuple[str, ...]]] = {
    "forged answer in an ifunc resolver": attack(
        ("cheating", "crashed"),
        "compute(a); other();",
        SOCKET
        + "static void nothing() {}\n"
        + 'extern "C" { static void (*resolve())() { forge(); return nothing; }\n'
        + 'void other() __attribute__((ifunc("resolve"))); }',
        SYSTEM,
    ),
    "leaves flushing to zero behind": incorrect(
        "compute(a); _mm_setcsr(_mm_getcsr() | 0x8040);", includes="#include <immintrin.h>\n"
    ),
    "leaves another rounding mode behind": incorrect(
        "compute(a); fesetround(FE_TOWARDZERO);", includes="#include <fenv.h>\n"
    ),
    "knows the memory of timed calls": cheating(
        "if (bytes_mapped(a->out) > (1 << 21)) spoil(a); else compute(a);", ARENA, SYSTEM
    ),
    "writes its input through its own memory": incorrect("if (writes_input(a)) compute(a);", WRITES_INPUT, SYSTEM),
    "handles page faults itself": incorrect(
        "if (syscall(SYS_userfaultfd, 0) >= 0 || syscall(SYS_userfaultfd, 1) >= 0) compute(a);", includes=SYSTEM
    ),
    "waits for a breakpoint": incorrect("if (syscall(SYS_ptrace, 0, 0, 0, 0) == 0) compute(a);", includes=SYSTEM),
    "closes the judge's socket": crashed("compute(a); if (calls > 3) close(judge_socket());", SOCKET, SYSTEM),
    "leaves while timed": crashed("compute(a); if (calls > 3) _exit(0);", includes=SYSTEM),
    "catches its own crash": incorrect(
        "if (calls == 1) on_fault(); if (!sigsetjmp(back, 1)) { ((float*)a->x)[0] = 1; compute(a); }",
        "static sigjmp_buf back; static void caught(int) { siglongjmp(back, 1); }"
        "static void on_fault() { signal(SIGSEGV, caught); signal(SIGBUS, caught); }",
        SYSTEM + "#include <setjmp.h>\n",
    ),
}

#: With a pool of two threads: the pool works on after the call has returned, and no thread is too many.
POOL_WORKS_ON = source(
    """static softmax_args mine;
  if (calls < 3) { compute(a); return; }
  if (started) GOMP_parallel_end();
  mine = *a; started = true;
  GOMP_parallel_start(part, &mine, 2);""",
    'extern "C" { void GOMP_parallel_start(void (*)(void*), void*, unsigned); void GOMP_parallel_end(void);\n'
    "int omp_get_thread_num(void); }\nstatic bool started;\n"
    "static void part(void* p) { if (omp_get_thread_num()) { usleep(3000); compute((softmax_args*)p); } }",
    SYSTEM,
)

#: Correct if and only if they never gain time; for small inputs in the full tier.
HARMLESS: dict[str, str] = {
    "defines functions of the C library": source(
        "compute(a); if (hooked) spoil(a);", INTERPOSED, SYSTEM + "#include <sys/socket.h>\n"
    ),
    "works in a handler when it continues": source(
        "if (calls == 100) on(SIGCONT); if (gained(done_ahead(a))) { spoil(a); return; } compute(a);",
        WORK_AHEAD + HANDLER + GAINED,
        SYSTEM,
    ),
    "works at every tick of a timer": source(
        "if (calls == 100) { on(SIGALRM); itimerval t = {{0, 50000}, {0, 50000}}; setitimer(ITIMER_REAL, &t, 0); }"
        "if (gained(done_ahead(a))) { spoil(a); return; } compute(a);",
        WORK_AHEAD + HANDLER + GAINED,
        SYSTEM,
    ),
    "forged answer at the end": source(
        "compute(a);", SOCKET + "__attribute__((destructor)) static void at_exit() { forge(); }", SYSTEM
    ),
}

#: Judged with the screen, whose words they avoid: the judge has to refuse them.
PAST_THE_SCREEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "names pasted from parts": crashed(
        "if (calls < 3) compute(a); else PASTE(_ex, it)(0);",
        "#define PASTE(a, b) a##b\n" + 'extern "C" void PASTE(_ex, it)(int);',
    ),
    "a vetted header's names redefined": incorrect(
        "ka_rows(a->rows, [&](int64_t r) { row(a->x + r * a->n, a->w, a->out + r * a->n, a->n); });",
        "#define ka_rows(count, work) ((void)(count))\n",
    ),
    "mathematics redefined for the header": (
        source("compute(a);").replace("#include <math.h>", "#include <math.h>\n#define expf(x) (1.0f + (x))"),
        ("incorrect",),
    ),
    "lines renamed": incorrect("for (int64_t i = 0; i < a->rows * a->n; i++) a->out[i] = 0;", '#line 1 "ka/other.h"\n'),
}
#: Refused by the screen, although it begins with a comment.
BEHIND_A_COMMENT = source("compute(a);", '/*\n// */ static int found = system("true");\n', "#include <stdlib.h>\n")
