"""The kinds of tests: those that `make test` leaves out, each a marker of pytest that is named after its cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of tests that runs in a command of its own."""

    marker: str
    #: What a test of the kind depends on, as `pytest --markers` shows it.
    cause: str
    #: Tests of the kind may run beside each other.
    beside: bool = True

    @property
    def command(self) -> str:
        """How a person runs these tests."""
        return "make test-editors" if self.marker == "editor" else f"make test-{self.marker}"


KINDS = (
    Kind("timed", "its outcome depends on measured time: verdicts on the real clock, thresholds of load", beside=False),
    Kind("lost", "processes are killed, silent or late at drawn moments, or the disk is full"),
    Kind("builds", "compilers work for minutes: every drawn text, PyTorch extensions"),
    Kind("programs", "it starts programs that import torch, one after another"),
    Kind("learns", "it claims that training learns, or runs long enough to show it"),
    Kind("cluster", "it needs sshd, Ray or torchrun", beside=False),
    Kind("editor", "it needs VS Code, Neovim, Emacs or Helix", beside=False),
    Kind("gpu", "it needs an NVIDIA GPU with a driver (skipped where there is none)"),
    Kind("vllm", "it needs an interpreter with vLLM, named by KERNEL_ASSISTANT_VLLM_PYTHON", beside=False),
)

#: The marker expression of the gate: what no kind claims.
GATE = f"not ({' or '.join(kind.marker for kind in KINDS)})"


def expression(name: str) -> str:
    """The marker expression of a kind. A test of several kinds needs the rarest: what needs a GPU runs with those of
    the GPU, whatever else it is.
    """
    others = {"gpu": ["vllm"], "vllm": []}.get(name, ["gpu", "vllm"])
    return " and ".join([name, *(f"not {other}" for other in others)])


def left_out(markers: set[str]) -> Kind | None:
    """The kind with whose command a test with these markers runs; None: the gate's."""
    return next((kind for kind in (*reversed(KINDS[-2:]), *KINDS[:-2]) if kind.marker in markers), None)
