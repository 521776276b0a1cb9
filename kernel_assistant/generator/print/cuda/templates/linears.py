"""Writes linear layers of few rows as one kernel; see docs/language_models.md.

A block computes 16 outputs of one layer for eight rows; its warps divide K. Each thread reads eight neighbouring
elements at once and gives them to two products of the tensor cores (m16n8k16). These sum over k in any order, as long
as weights and rows have the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import known_size, size_text
from kernel_assistant.generator.ir.sizes import product as times
from kernel_assistant.generator.loops.linears import Linears
from kernel_assistant.generator.print.render import ELEMENTS, KernelSource
from kernel_assistant.records import Launch

#: Outputs and rows of a block, elements of a load, and elements that a warp reads of a row at once.
OUTPUTS, ROWS, VECTOR, STEP = 16, 8, 8, 32
#: What a search tries.
WARPS, UNROLLS, STAGES = (1, 2, 4, 8, 16), (2, 4, 8), (0, 2, 3, 4)
#: Bytes of shared memory of a block.
MOST_SHARED = 96 << 10


@dataclass(frozen=True, slots=True)
class Split:
    """How a block divides K, the `width` input features that are summed, among `warps` warps. Each warp has `unroll`
    loads in flight: to registers if `stages` is 0, else to shared memory with room for `stages` groups of loads."""

    width: int
    warps: int
    unroll: int
    stages: int = 0

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def share(self) -> int:
        """The number of elements of K that each warp handles, a multiple of STEP."""
        return -(-self.width // (self.warps * STEP)) * STEP

    @property
    def shared(self) -> int:
        """The bytes of shared memory for weights and rows that are copied there."""
        return self.stages * self.unroll * 3 * self.threads * 16

    @property
    def is_whole(self) -> bool:
        """Whether all warps handle equally many elements, and always have `unroll` whole loads in flight."""
        return self.width % self.share == 0 and self.share % (self.unroll * STEP) == 0

    def obstacle(self) -> str:
        """Returns the reason why the kernel cannot be launched or has idle warps or stages; "" if there is none."""
        if self.stages and self.share <= self.unroll * STEP:
            return "nothing is left to copy ahead"
        if self.shared > MOST_SHARED:
            return f"{self.shared} bytes of shared memory"
        if self.warps > 1 and self.share * (self.warps - 1) >= self.width:
            return f"{self.warps} warps for {self.width} elements"
        return ""


def possible(linears: Linears) -> Iterator[Split]:
    """Yields all divisions of K whose kernels can be launched, with work for each warp and stage."""
    for stages, warps, unroll in product(STAGES, WARPS, UNROLLS):
        split = Split(_width(linears), warps, unroll, stages)
        if not split.obstacle():
            yield split


def tiles(linears: Linears) -> list[int]:
    """Returns, for each layer, the number of thread blocks that compute a group of eight rows."""
    return [-(-known_size(weight.sizes[0]) // OUTPUTS) for weight in linears.weights]


def _width(linears: Linears) -> int:
    return known_size(linears.weights[0].sizes[1])


def emit_linears(linears: Linears, schedule: Schedule, prefix: str) -> tuple[KernelSource, Launch]:
    """Returns the kernel and its launch. Raises Unsupported if the schedule has another form, if the kernel cannot be
    launched, or if warps or stages would be idle."""
    if schedule.form != "linears":
        raise Unsupported(f"schedule {schedule.form} for linear layers of few rows")
    split = Split(_width(linears), schedule["warps"], schedule["unroll"], schedule["stages"])
    if obstacle := split.obstacle():
        raise Unsupported(obstacle)
    return _LinearsWriter(linears, split, prefix).write()


class _LinearsWriter:
    def __init__(self, linears: Linears, split: Split, prefix: str) -> None:
        self.linears, self.split = linears, split
        self.unit = KernelSource(prefix + "linears", "cuda")
        self.element = ELEMENTS["cuda"][linears.x.dtype]

    def write(self) -> tuple[KernelSource, Launch]:
        unit, split = self.unit, self.split
        rows = times(self.linears.x.sizes[:-1])
        unit.add(f"typedef {self.element} T;")
        unit.add(f"constexpr int K = {self.linears.x.sizes[-1]}, WARPS = {split.warps}, UNROLL = {split.unroll};")
        if split.stages:
            unit.add(f"constexpr int STAGES = {split.stages}, THREADS = {split.threads};")
        unit.add(f"constexpr int SHARE = (K + WARPS * {STEP} - 1) / (WARPS * {STEP}) * {STEP};")
        unit.add(f"__shared__ float sums[WARPS][{OUTPUTS}][{ROWS}];")
        self._choose()
        unit.add(f"const int64_t rows = {unit.size(rows)};")
        self._sum()
        self._store()
        unit.finish(bounds=f"__launch_bounds__({split.threads}) ")
        blocks = " + ".join(f"cdiv({size_text(weight.sizes[0])}, {OUTPUTS})" for weight in self.linears.weights)
        return unit, unit.launch(
            (f"({blocks}) * cdiv({size_text(rows)}, {ROWS})", "1", "1"), split.threads, str(split.shared)
        )

    def _choose(self) -> None:
        """Writes the code that determines the layer, the rows and the first output of this block."""
        unit = self.unit
        blocks = [f"({unit.size(weight.sizes[0])} + {OUTPUTS - 1}) / {OUTPUTS}" for weight in self.linears.weights]
        unit.add(f"const unsigned blocks = {' + '.join(blocks)};")
        unit.add(f"const int64_t row = blockIdx.x / blocks * (int64_t){ROWS};")
        unit.add(f"int {'layer = 0, ' if len(blocks) > 1 else ''}tile = blockIdx.x % blocks;")
        for number, count in enumerate(blocks[:-1]):
            unit.add(f"if (layer == {number} && tile >= {count}) ++layer, tile -= {count};")
        weights = [unit.buffer(weight.root) for weight in self.linears.weights]
        outputs = [unit.buffer(f"out{index}") for index in self.linears.outputs]
        unit.add(f"const int outputs = {self._of_layer([unit.size(one.sizes[0]) for one in self.linears.weights])};")
        strides = [unit.size(one.strides[0]) for one in self.linears.weights]
        unit.add(f"const int64_t stride = {self._of_layer(strides)};")
        unit.add(f"const T* const weights = {self._of_layer(weights)};")
        unit.add(f"T* const out = {self._of_layer(outputs)};")
        if any(self.linears.biases):
            biases = ["(const T*)nullptr" if one is None else unit.buffer(one.root) for one in self.linears.biases]
            unit.add(f"const T* const biases = {self._of_layer(biases)};")

    @staticmethod
    def _of_layer(texts: list[str]) -> str:
        """Returns C text that selects, by the C variable `layer`, the text for this block's layer; `texts` has one text
        for each layer."""
        if len(set(texts)) == 1:
            return texts[0]
        chosen = "".join(f"layer == {number} ? {text} : " for number, text in enumerate(texts[:-1]))
        return chosen + texts[-1]

    def _sum(self) -> None:
        unit = self.unit
        unit.add("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;")
        unit.add(f"const int first = tile * {OUTPUTS} + g, last = outputs - 1;")
        unit.add(f"const T* const upper = weights + (first < last ? first : last) * stride + t * {VECTOR};")
        unit.add(f"const T* const lower = weights + (first + 8 < last ? first + 8 : last) * stride + t * {VECTOR};")
        offset = f"(row + g < rows ? row + g : rows - 1) * K + t * {VECTOR}"
        unit.add(f"const T* const given = {unit.buffer(self.linears.x.root)} + {offset};")
        unit.add("const int begin = warp * SHARE, end = begin + SHARE < K ? begin + SHARE : K;")
        unit.add("float sum[4] = {0, 0, 0, 0};")
        if self.split.stages:
            self._through_stages()
        else:
            unit.open(f"for (int k = begin; k < end; k += UNROLL * {STEP})")
            unit.add("uint4 a[UNROLL], b[UNROLL], x[UNROLL];")
            self._load()
            self._multiply()
            unit.close()

    def _load(self) -> None:
        """Writes the loads for UNROLL steps from k on, with zeros behind the end."""
        unit, whole = self.unit, self.split.is_whole
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add(f"const int at = k + u * {STEP};")
        if not whole:
            unit.add(f"const bool inside = at + t * {VECTOR} < end;")
        for name, source in (("a", "upper"), ("b", "lower"), ("x", "given")):
            load = f"__ldg((const uint4*)({source} + at))" if name == "x" else f"ka_stream({source} + at)"
            unit.add(f"{name}[u] = {load if whole else f'inside ? {load} : uint4{{0, 0, 0, 0}}'};")
        unit.close()

    def _multiply(self) -> None:
        unit = self.unit
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add("ka_mma(T(), sum, a[u].x, b[u].x, a[u].y, b[u].y, x[u].x, x[u].y);")
        unit.add("ka_mma(T(), sum, a[u].z, b[u].z, a[u].w, b[u].w, x[u].z, x[u].w);")
        unit.close()

    def _through_stages(self) -> None:
        """Writes the loop in which copies to shared memory are started some stages before they are used. Each thread
        reads only elements that it has copied itself.
        """
        unit = self.unit
        unit.add("extern __shared__ uint4 ka_dynamic[];")
        unit.add("uint4* const slots = ka_dynamic + threadIdx.x;")
        unit.add("#pragma unroll")
        unit.open("for (int stage = 0; stage < STAGES - 1; ++stage)")
        self._copy("stage", f"begin + stage * UNROLL * {STEP}")
        unit.close()
        unit.add("int stage = 0;")
        unit.open(f"for (int k = begin; k < end; k += UNROLL * {STEP})")
        self._copy("(stage + STAGES - 1) % STAGES", f"k + (STAGES - 1) * UNROLL * {STEP}")
        unit.add("ka_groups_wait<STAGES - 1>();")
        unit.add("uint4 a[UNROLL], b[UNROLL], x[UNROLL];")
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add("const uint4* const slot = slots + (stage * UNROLL + u) * 3 * THREADS;")
        unit.add("a[u] = slot[0], b[u] = slot[THREADS], x[u] = slot[2 * THREADS];")
        unit.close()
        self._multiply()
        unit.add("stage = (stage + 1) % STAGES;")
        unit.close()

    def _copy(self, stage: str, begin: str) -> None:
        """Writes the code that starts the copies of weights and rows from column `begin` on, as one group of
        asynchronous copies.
        """
        unit = self.unit
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add(f"const int at = {begin} + u * {STEP};")
        unit.add(f"const bool inside = at + t * {VECTOR} < end;")
        unit.add(f"uint4* const slot = slots + (({stage}) * UNROLL + u) * 3 * THREADS;")
        for number, source in enumerate(("upper", "lower", "given")):
            offset = f" + {number} * THREADS" if number else ""
            unit.add(f"ka_copy(slot{offset}, {source} + (inside ? at : 0), inside);")
        unit.close()
        unit.add("ka_group();")

    def _store(self) -> None:
        unit = self.unit
        unit.add("#pragma unroll")
        unit.add("for (int i = 0; i < 4; ++i) sums[warp][g + i / 2 * 8][t * 2 + i % 2] = sum[i];")
        unit.add("__syncthreads();")
        unit.open(f"for (int at = threadIdx.x; at < {OUTPUTS * ROWS}; at += {self.split.threads})")
        unit.add(f"const int output = tile * {OUTPUTS} + at % {OUTPUTS};")
        unit.add(f"if (output >= outputs || row + at / {OUTPUTS} >= rows) continue;")
        unit.add("float total = 0;")
        unit.add("#pragma unroll")
        unit.add(f"for (int w = 0; w < WARPS; ++w) total += sums[w][at % {OUTPUTS}][at / {OUTPUTS}];")
        if any(self.linears.biases):
            sure = all(self.linears.biases)
            unit.add(f"{'' if sure else 'if (biases) '}total += ka_get(biases[output]);")
        unit.add(f"ka_put(out[(row + at / {OUTPUTS}) * outputs + output], total);")
        unit.close()
