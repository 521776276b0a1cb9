"""Generates replies to many prompts at once, with a key-value cache of fixed size and a CUDA graph of one decoding
step.

A row of the batch holds one conversation. Several steps run without synchronizing host and device; then finished rows
are collected and assigned to waiting prompts. When few rows are still in use, they are moved together, so that the
batch can be smaller. Without CUDA the same code runs without graphs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernel_assistant_training.architecture import Llama, rotated, rotations
from kernel_assistant_training.reply import MOST_REPLY

#: Steps between two checks for finished rows.
STRETCH = 16
#: Attention reads keys up to a multiple of this; there is a graph for each multiple.
BLOCK = 256
#: Free rows are assigned when this share of them is free; the number of rows shrinks by the factor FEWER.
FREE = 1 / 16
FEWER = 4
#: Backends that take a mask. PyTorch would choose cuDNN's, which makes a new plan for each size.
KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
#: (layer's number, queries, keys, values) → the result of attention.
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt (token ids) to be answered. `temperature` 0 is greedy. At most `most` tokens are sampled, the end
    token included. The same `seed` gives the same random numbers in any row of the batch; only rounding errors may
    depend on how many rows the batch has."""

    prompt: Sequence[int]
    temperature: float = 1.0
    seed: int = 0
    most: int = MOST_REPLY


@dataclass(frozen=True)
class Reply:
    """The tokens that were sampled for a request. `logprobs` are their log-probabilities before temperature is applied.
    `ended`: whether the last token is the end token. `others` has for each position the `width` (of the Decoder)
    likeliest tokens, each with its log-probability."""

    ids: list[int]
    logprobs: list[float]
    ended: bool
    others: list[list[tuple[int, float]]]


#: The weights of a layer in the order of `_Layer`; those with the same input are concatenated.
_TOGETHER = (
    ("input_layernorm",),
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("post_attention_layernorm",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)


@dataclass(frozen=True)
class _Layer:
    before: Tensor
    projections: Tensor
    output: Tensor
    after: Tensor
    gates: Tensor
    down: Tensor


class Decoder:
    """Decodes up to `rows` conversations of at most `context` tokens (rounded up to a multiple of 256) at once; the
    token `end` ends a reply. Replies list the `width` likeliest tokens of each position (0: none). Not thread-safe."""

    def __init__(
        self, model: Llama, end: int, *, rows: int, context: int, device: torch.device, width: int = 0
    ) -> None:
        self.shape, self.end, self.device = model.shape, end, device
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.context = -(-context // BLOCK) * BLOCK
        self._sizes: list[int] = sorted({max(1, rows // FEWER**power) for power in range(4)})
        shape = self.shape
        self._cosine, self._sine = rotations(shape, self.context, device)
        self._keys, self._values = (
            torch.zeros(
                shape.layers, rows, shape.kv_heads, self.context, shape.head_width, dtype=self.dtype, device=device
            )
            for _ in range(2)
        )
        self._last, self._positions, self._count, self._limit = (
            torch.zeros(rows, dtype=torch.long, device=device) for _ in range(4)
        )
        self._live = torch.zeros(rows, dtype=torch.bool, device=device)
        self._temperature = torch.zeros(rows, device=device)
        self._tokens = torch.zeros(rows, self.context, dtype=torch.long, device=device)
        self._logprobs, self._chance = (torch.zeros(rows, self.context, device=device) for _ in range(2))
        self._width = width
        self._other = torch.zeros(rows, self.context, width, dtype=torch.long, device=device)
        self._other_logprobs = torch.zeros(rows, self.context, width, device=device)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._weights: list[Tensor] = []
        self.load(model)

    @torch.no_grad()
    def load(self, model: Llama) -> None:
        """Copies the weights of a model of the same shape into the existing buffers, so that captured CUDA graphs stay
        valid."""
        known = model.state_dict()
        weights = [known["model.embed_tokens.weight"], known["model.norm.weight"]]
        for number in range(self.shape.layers):
            weights += [
                torch.cat([known[f"model.layers.{number}.{name}.weight"] for name in names]) for names in _TOGETHER
            ]
        if not self._weights:
            self._weights = [torch.empty_like(weight, dtype=self.dtype, device=self.device) for weight in weights]
            self._embedding, self._norm, *rest = self._weights
            self._layers = [
                _Layer(*rest[start : start + len(_TOGETHER)]) for start in range(0, len(rest), len(_TOGETHER))
            ]
        for mine, weight in zip(self._weights, weights, strict=True):
            mine.copy_(weight)

    @torch.inference_mode()
    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        """Returns a reply to each request, in order. Raises ValueError if a prompt and its `most` tokens together are
        longer than the context."""
        if any(len(one.prompt) + one.most > self.context for one in asked):
            raise ValueError(f"a prompt with its answer has more than {self.context} tokens")
        waiting, replies = deque(enumerate(asked)), dict[int, Reply]()
        self._live.zero_()
        assigned: list[int | None] = [None] * self._size(len(asked))
        with sdpa_kernel(KERNELS):
            while waiting or any(request is not None for request in assigned):
                free = [row for row, request in enumerate(assigned) if request is None]
                if waiting and len(free) >= FREE * len(assigned):
                    self._assign([(row, *waiting.popleft()) for row in free[: len(waiting)]], assigned)
                elif not waiting and self._size(len(assigned) - len(free)) < len(assigned):
                    assigned = self._close_up(assigned)
                self._advance(len(assigned))
                self._collect(assigned, replies)
        return [replies[number] for number in range(len(asked))]

    def _size(self, wanted: int) -> int:
        return next((size for size in self._sizes if size >= wanted), self._sizes[-1])

    def _assign(self, arriving: Sequence[tuple[int, int, GenerationRequest]], assigned: list[int | None]) -> None:
        """Assigns requests to free rows of the batch, in `assigned` too. `arriving` has triples of a row, the number of
        its request, and the request. Writes the keys and values of each prompt, except its last token, into the cache;
        the next decoding step reads the last token.
        """
        longest = max(len(one.prompt) for _, _, one in arriving)
        tokens = torch.tensor([[*one.prompt, *[0] * (longest - len(one.prompt))] for _, _, one in arriving])
        rows = torch.tensor([row for row, _, _ in arriving], device=self.device)
        length = longest - 1

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            # The values after the end of a shorter prompt are overwritten before they are read.
            self._keys[layer][rows, :, :length], self._values[layer][rows, :, :length] = key, value
            group = self.shape.heads // self.shape.kv_heads
            key, value = (part.repeat_interleave(group, 1) for part in (key, value))
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

        if length:
            before = tokens[:, :-1].to(self.device)
            self._hidden(before, self._cosine[:length], self._sine[:length], attend)
        chances = torch.zeros(len(arriving), self.context)
        for index, (row, number, one) in enumerate(arriving):
            assigned[row] = number
            chances[index, : one.most] = torch.rand(one.most, generator=torch.Generator().manual_seed(one.seed))
        self._chance[rows] = chances.to(self.device)
        numbers = torch.tensor([[one.prompt[-1], len(one.prompt) - 1, one.most] for _, _, one in arriving])
        self._last[rows], self._positions[rows], self._limit[rows] = numbers.to(self.device).unbind(1)
        self._temperature[rows] = torch.tensor([one.temperature for _, _, one in arriving], device=self.device)
        self._count[rows], self._live[rows] = 0, True

    def _close_up(self, assigned: list[int | None]) -> list[int | None]:
        """Moves the rows that have a request to the front and reduces the batch to the smallest size that holds them.
        Takes and returns the request number of each row, None for free rows."""
        used = [row for row, request in enumerate(assigned) if request is not None]
        size = self._size(len(used))
        rows = torch.tensor(used, device=self.device)
        for state in (
            *(self._last, self._positions, self._count, self._limit, self._live, self._temperature),
            *(self._tokens, self._logprobs, self._other, self._other_logprobs, self._chance),
            *(*self._keys, *self._values),
        ):
            state[: len(used)] = state[rows]
        self._live[len(used) : size] = False
        return [assigned[row] for row in used] + [None] * (size - len(used))

    def _advance(self, rows: int) -> None:
        live, position = self._live[:rows], self._positions[:rows]
        ends = torch.stack([position, self._limit[:rows] - self._count[:rows]])
        furthest, left = torch.where(live, ends, 0).amax(1).tolist()
        steps = min(STRETCH, left)
        length = min(-(-(furthest + steps) // BLOCK) * BLOCK, self.context)
        step = self._graph(rows, length).replay if self.device.type == "cuda" else lambda: self._step(rows, length)
        for _ in range(steps):
            step()

    def _graph(self, rows: int, length: int) -> torch.cuda.CUDAGraph:
        """Returns the CUDA graph of one step over `rows` rows and `length` keys, and captures it on first use. Before
        capturing, one step runs as a warm-up; it changes no conversation, because all rows are marked as unused
        then."""
        if (rows, length) not in self._graphs:
            live = self._live.clone()
            self._live.zero_()
            self._step(rows, length)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(rows, length)
            self._live.copy_(live)
            self._graphs[rows, length] = graph
        return self._graphs[rows, length]

    def _collect(self, assigned: list[int | None], replies: dict[int, Reply]) -> None:
        live = self._live[: len(assigned)].tolist()
        done = [row for row, request in enumerate(assigned) if request is not None and not live[row]]
        if not done:
            return
        rows = torch.tensor(done, device=self.device)
        counts = self._count[rows].tolist()
        written = (self._tokens, self._logprobs, self._other, self._other_logprobs)
        columns = zip(done, counts, *(each[rows, : max(counts)].tolist() for each in written), strict=True)
        for row, count, ids, logprobs, other, other_logprobs in columns:
            number = assigned[row]
            assert number is not None
            others = [list(zip(*both, strict=True)) for both in zip(other[:count], other_logprobs[:count], strict=True)]
            replies[number] = Reply(ids[:count], logprobs[:count], ids[count - 1] == self.end, others)
            assigned[row] = None

    def _step(self, rows: int, length: int) -> None:
        """Computes one more token for each row whose reply has not ended. The other rows compute too, but their results
        and counters do not change."""
        position, count, live = self._positions[:rows], self._count[:rows], self._live[:rows]
        each = torch.arange(rows, device=self.device)
        group = self.shape.heads // self.shape.kv_heads
        seen = torch.arange(length, device=self.device) <= position[:, None]
        mask = torch.where(seen, 0.0, -torch.inf).to(self.dtype)[:, None, None].expand(-1, -1, group, -1)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self._keys[layer][each, :, position], self._values[layer][each, :, position] = key[:, :, 0], value[:, :, 0]
            keys, values = self._keys[layer][:rows, :, :length], self._values[layer][:rows, :, :length]
            # Queries that share a key are treated as several queries of one head.
            query = query.view(rows, self.shape.kv_heads, group, -1)
            return F.scaled_dot_product_attention(query, keys, values, mask).reshape(rows, self.shape.heads, 1, -1)

        cosine, sine = self._cosine[position][:, None, None], self._sine[position][:, None, None]
        hidden = self._hidden(self._last[:rows, None], cosine, sine, attend)[:, 0]
        logprobs = F.linear(hidden, self._embedding).float().log_softmax(-1)
        chosen = self._chosen(logprobs, self._temperature[:rows], self._chance[each, count])
        logprob = logprobs.gather(-1, chosen[:, None])[:, 0]
        self._tokens[each, count], self._logprobs[each, count] = chosen, logprob
        if self._width:
            self._other_logprobs[each, count], self._other[each, count] = logprobs.topk(self._width)
        self._last[:rows] = torch.where(live, chosen, self._last[:rows])
        position += live
        count += live
        live &= (chosen != self.end) & (count < self._limit[:rows])

    @staticmethod
    def _chosen(logprobs: Tensor, temperature: Tensor, chance: Tensor) -> Tensor:
        """Returns the next token of each row, (rows,): the first at which the cumulative probability exceeds the row's
        random number `chance` (0 to 1), or the likeliest if the row's temperature is 0."""
        heat = temperature.clamp(min=1e-3)[:, None]
        passed = (logprobs / heat).softmax(-1, dtype=torch.float64).cumsum(-1)
        drawn = (passed <= chance[:, None] * passed[:, -1:]).sum(-1)
        return torch.where(temperature > 0, drawn, logprobs.argmax(-1))

    def _hidden(self, tokens: Tensor, cosine: Tensor, sine: Tensor, attend: Attend) -> Tensor:
        """Returns the hidden states (B, T, width) after the last norm, for `tokens` (B, T). `attend` computes the
        attention of a layer from (number, queries, keys, values), and writes keys and values into the cache."""
        shape, x = self.shape, F.embedding(tokens, self._embedding)
        for number, layer in enumerate(self._layers):
            projected = F.linear(self._normed(x, layer.before), layer.projections)
            heads = projected.view(*x.shape[:2], -1, shape.head_width).transpose(1, 2)
            turned = rotated(heads[:, : shape.heads + shape.kv_heads], cosine, sine)
            query, key = torch.split(turned, [shape.heads, shape.kv_heads], 1)
            attended = attend(number, query, key, heads[:, -shape.kv_heads :])
            x = x + F.linear(attended.transpose(1, 2).flatten(2), layer.output)
            gate, up = F.linear(self._normed(x, layer.after), layer.gates).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return self._normed(x, self._norm)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.width,), weight, self.shape.epsilon)
