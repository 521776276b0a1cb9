"""Writes the steps of one recurrent layer as one kernel; see docs/recurrent.md.

A cluster of blocks runs all steps of `batch` sequences in one direction. Each block has some of the hidden units; its
weights stay in registers and shared memory, and after each step it writes the new h of its units into the shared memory
of all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import Size, size_text
from kernel_assistant.generator.loops.recurrence import Recurrence
from kernel_assistant.generator.loops.strided import Resolver, View
from kernel_assistant.generator.print.cuda.common import CLUSTERS, MOST_REGISTERS, REGISTERS, STATIC_LIMIT
from kernel_assistant.generator.print.render import ELEMENTS, KernelSource
from kernel_assistant.records import Launch, OpGraph
from kernel_assistant.records.graph import Operand

#: What a search tries.
BATCHES, LANES, HELD = (1, 2, 4, 8), (4, 8, 16, 32), (4, 8, 12, 16, 20, 24, 32, 40)
#: Threads of a block, and bytes of shared memory for weights.
MOST_THREADS, MOST_SHARED = 1024, 160 * 1024
#: Registers that a thread needs beside its weights and sums.
OTHER_REGISTERS = 56


@dataclass(frozen=True, slots=True)
class Division:
    """How the rows of W_hh are divided among threads. The `hidden` units of a layer are divided among the `cluster`
    blocks of a cluster, so that a block has `units` of them. `lanes` threads share a unit: each has `columns` columns
    of the unit's rows, one row for each gate, in vectors of four. `width` is the length of a row, rounded up to whole
    vectors of all lanes. A cluster computes `batch` sequences; a thread has up to `held` vectors in registers."""

    hidden: int
    gates: int
    cluster: int
    batch: int
    lanes: int
    held: int

    @property
    def padded_gates(self) -> int:
        return 1 if self.gates == 1 else 4

    @property
    def units(self) -> int:
        """The number of hidden units of a block, chosen so that its threads are whole warps."""
        least, whole = -(-self.hidden // self.cluster), max(1, 32 // self.lanes)
        return -(-least // whole) * whole

    @property
    def threads(self) -> int:
        return self.units * self.lanes

    @property
    def width(self) -> int:
        return -(-self.hidden // (4 * self.lanes)) * 4 * self.lanes

    @property
    def columns(self) -> int:
        return self.width // self.lanes

    @property
    def vectors(self) -> int:
        """The number of vectors of four weights that a thread needs."""
        return self.gates * self.columns // 4

    @property
    def in_registers(self) -> int:
        """The number of vectors of weights that a thread has in registers."""
        return min(self.held, self.vectors)

    @property
    def shared(self) -> int:
        """The bytes of shared memory for the weights that are not in registers."""
        return (self.vectors - self.in_registers) * self.threads * 16

    @property
    def states(self) -> int:
        """The bytes of shared memory for two copies of h: the current one and the next one."""
        return 8 * self.batch * self.width

    @property
    def results(self) -> int:
        """Returns the number of batch elements whose gate values a thread computes, after the lanes of a unit have
        added their products and divided the sums among them."""
        return max(1, self.padded_gates * self.batch // self.lanes)

    @property
    def peers(self) -> int:
        """The number of blocks of the cluster to which a thread writes the new h."""
        return -(-self.cluster // self.padded_gates)

    @property
    def registers(self) -> int:
        """The number of registers of a thread for weights and sums."""
        return 4 * self.in_registers + 2 * self.padded_gates * self.batch

    @property
    def resident(self) -> int:
        """The number of blocks that fit on a multiprocessor at the same time."""
        if self.shared:
            return 1
        registers = min(MOST_REGISTERS, self.registers + OTHER_REGISTERS)
        return max(1, min(REGISTERS // (self.threads * registers), 2 * MOST_THREADS // self.threads))

    def obstacle(self) -> str:
        """Returns the reason why the kernel cannot be launched; "" if it can."""
        if self.threads > MOST_THREADS or not self.padded_gates <= self.lanes <= 32 or self.lanes & (self.lanes - 1):
            return f"{self.threads} threads, {self.lanes} for a hidden unit"
        if self.batch & (self.batch - 1):
            return f"{self.batch} elements of the batch at once"
        if self.shared > MOST_SHARED or self.states > STATIC_LIMIT:
            return f"{self.shared} bytes of weights, {self.states} of states in shared memory"
        if self.registers + OTHER_REGISTERS > min(MOST_REGISTERS, REGISTERS // self.threads):
            return f"{self.registers} registers for weights and sums"
        return ""


def possible(hidden: int, gates: int, clusters: Sequence[int] = CLUSTERS) -> Iterator[Division]:
    """Yields all divisions whose kernels can be launched, each with as many weights in registers as possible."""
    for cluster, batch, lanes in product(clusters, BATCHES, LANES):
        divisions = [Division(hidden, gates, cluster, batch, lanes, held) for held in HELD]
        divisions = [one for one in divisions if not one.obstacle()]
        if divisions:
            yield next((one for one in divisions if not one.shared), divisions[-1])


@lru_cache(maxsize=64)
def can_be_launched(hidden: int, gates: int) -> bool:
    """Whether some GPU can run the steps of a layer with `hidden` units and `gates` gates."""
    return any(possible(hidden, gates))


def emit_recurrence(
    graph: OpGraph, recurrence: Recurrence, schedule: Schedule, prefix: str
) -> tuple[KernelSource, Launch]:
    """Returns the kernel and its launch. Raises Unsupported if the schedule has another form, or if the kernel cannot
    be launched.
    """
    if schedule.form != "recurrence":
        raise Unsupported(f"schedule {schedule.form} for a recurrent layer")
    division = Division(
        recurrence.hidden, recurrence.gates, schedule["cluster"], schedule["batch"], schedule["lanes"], schedule["held"]
    )
    if obstacle := division.obstacle():
        raise Unsupported(obstacle)
    return _RecurrenceWriter(graph, recurrence, division, prefix).write()


class _RecurrenceWriter:
    def __init__(self, graph: OpGraph, recurrence: Recurrence, division: Division, prefix: str) -> None:
        self.graph, self.recurrence, self.division = graph, recurrence, division
        self.unit = KernelSource(prefix + "recurrence", "cuda")
        self.values = Resolver(graph)
        operands = recurrence.node.args
        self.x = self.values.view(operands[0])
        self.weights, self.biases = self._each(operands[1]), self._each(operands[2])
        self.states = [self.values.view(one) if one is not None else None for one in operands[3:5]]
        order = (0, 1) if recurrence.batch_first else (1, 0)
        self.elements, self.steps = (self.x.sizes[at] for at in order)
        self.strides = [self.x.strides[at] for at in order]

    def _each(self, operands: Operand) -> list[View]:
        return [self.values.view(one) for one in operands] if isinstance(operands, list) else []

    def _pointer(self, view: View) -> str:
        return self.unit.buffer(view.root)

    def _chosen(self, views: list[View]) -> str:
        """Returns C text of the pointer for this block's direction; `views` has one view for each direction."""
        texts = [self._pointer(view) for view in views]
        return texts[0] if len(texts) == 1 else f"back ? {texts[1]} : {texts[0]}"

    def write(self) -> tuple[KernelSource, Launch]:
        unit, division = self.unit, self.division
        self._places()
        self._load()
        unit.open("for (int64_t step = 0; step < steps; ++step)")
        self._sums()
        self._gates()
        unit.close()
        self._last()
        cluster = f"__cluster_dims__({division.cluster}, 1, 1) " if division.cluster > 1 else ""
        unit.finish(bounds=f"__launch_bounds__({division.threads}) {cluster}")
        count = f"cdiv({size_text(self.elements)}, {division.batch})"
        blocks = f"{count} * {self.recurrence.directions * division.cluster}"
        return unit, unit.launch((blocks, "1", "1"), division.threads, str(division.shared))

    def _places(self) -> None:
        """Writes the declarations of what this thread computes: a hidden unit, columns of the unit's rows, and finally
        one of its gates.
        """
        unit, one = self.unit, self.division
        share = one.lanes // one.padded_gates
        unit.add(f"constexpr int H = {one.hidden}, W = {one.width}, C = {one.cluster}, ITEMS = {one.batch};")
        unit.add("// h of each batch element: what this step reads, and what it writes.")
        unit.add("__shared__ __align__(16) float h[2][ITEMS][W];")
        unit.add(f"const int64_t batch = {unit.size(self.elements)}, steps = {unit.size(self.steps)};")
        unit.add("const int64_t group = blockIdx.x / C;")
        if self.recurrence.directions == 2:
            unit.add("const int64_t groups = (batch + ITEMS - 1) / ITEMS;")
            unit.add("const bool back = group >= groups;")
            unit.add("const int64_t first = (back ? group - groups : group) * ITEMS;")
        else:
            unit.add("constexpr bool back = false;")
            unit.add("const int64_t first = group * ITEMS;")
        unit.add(f"const int lane = threadIdx.x % {one.lanes};")
        rank = f"blockIdx.x % C * {one.units} + " if one.cluster > 1 else ""
        unit.add(f"const int unit = {rank}threadIdx.x / {one.lanes};")
        unit.add(f"const int gate = lane / {share}, part = lane % {share};")
        # Sums are halved over the lanes: a lane ends with sums of one gate, for these batch elements.
        if one.batch >= share:
            unit.add(f"const int item = part * {one.batch // share};")
        else:
            unit.add(f"const int item = part / {share // one.batch};")

    def _load(self) -> None:
        """Writes the loads of weights, bias and initial states."""
        unit, one = self.unit, self.division
        vectors, held = one.vectors, one.in_registers
        element = ELEMENTS["cuda"][self.x.dtype]
        unit.add(f"float4 w[{max(held, 1)}];")
        if vectors > held:
            unit.add("extern __shared__ uint4 ka_dynamic[];")
            unit.add("float4* const rest = (float4*)ka_dynamic;")
        unit.open("")
        unit.add(f"const {element}* weights = {self._chosen(self.weights)};")
        unit.add("#pragma unroll")
        unit.open(f"for (int at = 0; at < {vectors}; ++at)")
        unit.add(f"const int row = at / {one.columns // 4} * H + unit;")
        unit.add(f"const int column = (at % {one.columns // 4} * {one.lanes} + lane) * 4;")
        unit.add("float each[4];")
        unit.add("#pragma unroll")
        unit.add("for (int k = 0; k < 4; ++k)")
        unit.add("  each[k] = unit < H && column + k < H ? ka_get(weights[(int64_t)row * H + column + k]) : 0;")
        unit.add("const float4 four = make_float4(each[0], each[1], each[2], each[3]);")
        if vectors > held:
            unit.add(f"if (at < {held}) w[at % {max(held, 1)}] = four;")
            unit.add(f"else rest[(at - {held}) * {one.threads} + threadIdx.x] = four;")
        else:
            unit.add("w[at] = four;")
        unit.close()
        unit.close()
        exists = f"unit < H && gate < {one.gates}"
        if self.biases:
            unit.add(f"const {element}* biases = {self._chosen(self.biases)};")
            unit.add(f"const float bias = {exists} ? ka_get(biases[gate * H + unit]) : 0;")
        h0, c0 = self.states
        unit.open(f"for (int at = threadIdx.x; at < ITEMS * W; at += {one.threads})")
        unit.add("const int which = at / W, column = at % W;")
        unit.add(f"h[0][which][column] = {self._state(h0, 'which', 'column')};")
        unit.add("h[1][which][column] = 0;")
        unit.close()
        unit.add(f"float state[{one.results}];")
        own = c0 if self.recurrence.kind == "lstm" else h0
        self._for_results(f"state[m] = {self._state(own, 'item + m', 'unit')};")
        if self.recurrence.kind == "lstm":
            unit.add(f"float last[{one.results}];")
            self._for_results(f"last[m] = {self._state(h0, 'item + m', 'unit')};")
        if one.cluster > 1:
            unit.add(f"uint32_t peer[{one.peers}];")
            unit.add("#pragma unroll")
            rank = f"gate + k * {one.padded_gates}"
            unit.add(f"for (int k = 0; k < {one.peers}; ++k) peer[k] = ka_peer(h, ({rank}) % C);")
            unit.add("ka_cluster_barrier();")
        else:
            unit.add("__syncthreads();")
        directions, gates = self.recurrence.directions, one.gates
        offset = f"(back ? {gates} * H : 0) + gate * H + unit" if directions == 2 else "gate * H + unit"
        unit.add(f"const {element}* x = {self._pointer(self.x)} + {offset};")
        unit.add(f"float given[{one.results}];")
        self._read_gates("back ? steps - 1 : 0", "steps > 0")

    def _state(self, view: View | None, item: str, unit: str) -> str:
        """Returns C text of an element of the initial state `view`, 0 outside the tensor or without initial state."""
        if view is None:
            return "0"
        back = " + back" if self.recurrence.directions == 2 else ""
        layer = f"{self.recurrence.layer * self.recurrence.directions}{back}"
        index = f"(({layer}) * batch + first + {item}) * H + {unit}"
        return f"first + {item} < batch && {unit} < H ? ka_get({self._pointer(view)}[{index}]) : 0"

    def _for_results(self, line: str) -> None:
        self.unit.add("#pragma unroll")
        self.unit.add(f"for (int m = 0; m < {self.division.results}; ++m) {line}")

    def _read_gates(self, step: str, condition: str) -> None:
        """Writes the loads of the input's part of the gates (W_ih · x) for one step into the array `given`."""
        exists = f"{condition} && unit < H && gate < {self.division.gates} && first + item + m < batch"
        batch, steps = (self.unit.size(stride) for stride in self.strides)
        index = f"(first + item + m) * {batch} + ({step}) * {steps}"
        self._for_results(f"given[m] = {exists} ? ka_get(x[{index}]) : 0;")

    def _sums(self) -> None:
        """Writes W_hh · h for all gates of the unit, over this thread's columns, then the sums over the lanes."""
        unit, one = self.unit, self.division
        vectors, held, along = one.vectors, one.in_registers, one.columns // 4
        padded = one.padded_gates * one.batch
        unit.add(f"float sum[{padded}] = {{}};")
        unit.add("#pragma unroll")
        unit.open(f"for (int j = 0; j < {along}; ++j)")
        unit.add("#pragma unroll")
        unit.open("for (int n = 0; n < ITEMS; ++n)")
        unit.add(f"const float4 own = ((const float4*)h[step & 1][n])[j * {one.lanes} + lane];")
        unit.add("#pragma unroll")
        unit.open(f"for (int g = 0; g < {one.gates}; ++g)")
        unit.add(f"const int at = g * {along} + j;")
        if vectors > held:
            spilled = f"rest[(at - {held}) * {one.threads} + threadIdx.x]"
            unit.add(f"const float4 weight = at < {held} ? w[at % {max(held, 1)}] : {spilled};")
        else:
            unit.add("const float4 weight = w[at];")
        unit.add("float& total = sum[g * ITEMS + n];")
        for field in "xyzw":
            unit.add(f"total = fmaf(weight.{field}, own.{field}, total);")
        for _ in range(3):
            unit.close()
        count, mask = padded, one.lanes // 2
        while mask:
            if count > 1:
                count //= 2
                unit.add("#pragma unroll")
                unit.open(f"for (int k = 0; k < {count}; ++k)")
                unit.add(f"const bool upper = lane & {mask};")
                unit.add(f"const float away = upper ? sum[k] : sum[k + {count}];")
                unit.add(f"sum[k] = (upper ? sum[k + {count}] : sum[k]) + __shfl_xor_sync(~0u, away, {mask});")
                unit.close()
            else:
                unit.add(f"sum[0] += __shfl_xor_sync(~0u, sum[0], {mask});")
            mask //= 2

    def _gates(self) -> None:
        """Writes the computation of the new state, and the stores of h to all blocks of the cluster."""
        unit, one, kind = self.unit, self.division, self.recurrence.kind
        share = one.lanes // one.padded_gates
        unit.add("const int64_t t = back ? steps - 1 - step : step;")
        unit.add("const int next = (step + 1) & 1;")
        unit.add("#pragma unroll")
        unit.open(f"for (int m = 0; m < {one.results}; ++m)")
        unit.add(f"const float own = sum[m]{' + bias' if self.biases else ''};")
        if kind == "lstm":
            unit.add("// sigmoid(x) = tanh(x / 2) / 2 + 1 / 2")
            unit.add("const float all = given[m] + own;")
            unit.add("const float bent = ka_tanh(gate == 2 ? all : 0.5f * all);")
            unit.add("const float value = gate == 2 ? bent : 0.5f * bent + 0.5f;")
            for number, name in enumerate(("in", "keep", "cell", "out")):
                unit.add(f"const float {name} = {self._of_gate('value', number, share)};")
            unit.add("state[m] = keep * state[m] + in * cell;")
            unit.add("const float result = out * ka_tanh(state[m]);")
            unit.add("last[m] = result;")
        elif kind == "gru":
            unit.add("const float value = ka_sigmoid(given[m] + own);")
            unit.add(f"const float reset = {self._of_gate('value', 0, share)};")
            unit.add(f"const float keep = {self._of_gate('value', 1, share)};")
            unit.add(f"const float from_x = {self._of_gate('given[m]', 2, share)};")
            unit.add(f"const float from_h = {self._of_gate('own', 2, share)};")
            unit.add("const float fresh = ka_tanh(from_x + reset * from_h);")
            unit.add("const float result = fresh + keep * (state[m] - fresh);")
            unit.add("state[m] = result;")
        else:
            unit.add("const float all = given[m] + own;")
            unit.add(f"const float result = {'ka_tanh(all)' if kind == 'rnn_tanh' else 'all < 0 ? 0 : all'};")
            unit.add("state[m] = result;")
        self._put_h()
        unit.close()
        unit.add("ka_cluster_arrive();" if one.cluster > 1 else "__syncthreads();")
        self._put_steps()
        self._read_gates("back ? t - 1 : t + 1", "step + 1 < steps")
        if one.cluster > 1:
            unit.add("ka_cluster_wait();")

    def _of_gate(self, value: str, gate: int, share: int) -> str:
        """Returns C text that reads the variable `value` of the lane that has gate number `gate` of the same unit and
        batch element."""
        lanes = self.division.lanes
        return f"__shfl_sync(~0u, {value}, {gate * share} + part, {lanes})"

    def _put_h(self) -> None:
        unit, one = self.unit, self.division
        if one.cluster == 1:
            unit.add("if (unit < H && gate == 0) h[next][item + m][unit] = result;")
            return
        unit.add("const uint32_t place = ((next * ITEMS + item + m) * W + unit) * 4;")
        unit.add("#pragma unroll")
        unit.add(f"for (int k = 0; k < {one.peers}; ++k)")
        sure = "" if one.cluster % one.padded_gates == 0 else f" && gate + k * {one.padded_gates} < C"
        unit.add(f"  if (unit < H{sure}) ka_put_peer(peer[k] + place, result);")

    @property
    def _current(self) -> str:
        return "last[m]" if self.recurrence.kind == "lstm" else "state[m]"

    def _put_steps(self) -> None:
        if 0 not in self.recurrence.results:
            return
        view = self._output(0)
        order = (0, 1) if self.recurrence.batch_first else (1, 0)
        batch, steps = (self.unit.size(view.strides[at]) for at in order)
        column = "(back ? H : 0) + unit" if self.recurrence.directions == 2 else "unit"
        step = self._times(column, view.strides[2])
        index = f"(first + item + m) * {batch} + t * {steps} + {step}"
        out = self.unit.buffer(f"out{self.graph.outputs.index(self.recurrence.results[0])}")
        self._for_results(f"if ({self._own}) ka_put({out}[{index}], {self._current});")

    @property
    def _own(self) -> str:
        return "gate == 0 && unit < H && first + item + m < batch"

    def _times(self, text: str, stride: Size) -> str:
        return text if stride == 1 else f"({text}) * {self.unit.size(stride)}"

    def _output(self, number: int) -> View:
        return self.values.buffer(self.recurrence.results[number])

    def _last(self) -> None:
        """Writes the stores of the final states after the last step."""
        for number, value in ((1, self._current), (2, "state[m]")):
            if number in self.recurrence.results:
                view = self._output(number)
                layer, batch, column = (self.unit.size(stride) for stride in view.strides)
                out = self.unit.buffer(f"out{self.graph.outputs.index(self.recurrence.results[number])}")
                back = f"(back ? {layer} : 0) + " if self.recurrence.directions == 2 else ""
                index = f"{back}(first + item + m) * {batch} + unit * {column}"
                self._for_results(f"if ({self._own}) ka_put({out}[{index}], {value});")
