"""Draws the load of devices as lines: at least one line for each device, and more if there is room. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kernel_assistant_tui.devices.machine import DeviceHistory
from kernel_assistant_tui.devices.reading import Cpu, DeviceSample, Gpu, Process
from kernel_assistant_tui.widgets.glyphs import clean, glyph

_MUTED = "$text 60%"
#: Shown for processes that the driver does not report in a container.
UNLISTED = "in use by processes that the driver does not list here"
NAMELESS = "(not a process that is seen from here)"
_LEVELS = " ▁▂▃▄▅▆▇█"
_PLAIN_LEVELS = " .:-=+*#@"


def device_lines(reading: DeviceSample, history: DeviceHistory, width: int, height: int) -> list[Content]:
    """Return the lines for the GPUs and the CPU, followed by as many of the GPUs' processes as `height` lines allow."""
    lines: list[Content] = []
    if reading.trouble:
        lines.append(Content.styled(clean(reading.trouble), _MUTED))
    for gpu in reading.gpus:
        lines.append(_gpu(gpu, history, width))
        if gpu.note:
            lines.append(Content.styled(clean(f"  {gpu.note}"), "$text-warning"))
        if gpu.unlisted:
            lines.append(Content.styled(f"  {gpu.index}: {_bytes(gpu.unlisted)} {UNLISTED}", _MUTED))
    lines += _cpu(reading.cpu, history, width)
    processes = [_process(gpu, one) for gpu in reading.gpus for one in gpu.processes]
    left = len(processes) - max(1, height - len(lines))
    if left > 0:
        processes = [*processes[: -left - 1], Content.styled(f"  and {left + 1} more processes", _MUTED)]
    return [*lines, *processes]


def _process(gpu: Gpu, process: Process) -> Content:
    where, size = f"  {gpu.index}: {process.pid:>7} ", f"  {_bytes(process.memory)}"
    name = clean(process.name) if process.name else (NAMELESS, _MUTED)
    return Content.assemble((where, _MUTED), name, (size, _MUTED))


def sparkline(values: Sequence[float], width: int) -> str:
    """Return values in per cent as bars of one cell each, the newest at the right."""
    levels = glyph(_LEVELS, _PLAIN_LEVELS)
    shown = [levels[min(len(levels) - 1, max(0, round(one / 100 * (len(levels) - 1))))] for one in values[-width:]]
    return "".join(shown).rjust(width) if width > 0 else ""


def _gpu(gpu: Gpu, history: DeviceHistory, width: int) -> Content:
    memory = f"{_bytes(gpu.memory)} of {_bytes(gpu.memory_total)}" if gpu.memory_total else "memory ?"
    power = f"{gpu.power:.0f} of {gpu.power_limit:.0f} W" if gpu.power is not None and gpu.power_limit else "power ?"
    heat = f"{gpu.temperature} C" if gpu.temperature is not None else "? C"
    count = len(gpu.processes)
    head = Content.assemble(
        (f"{gpu.index} {clean(gpu.name)[:14]:<14} ", "bold $text-primary"),
        (_share(gpu.busy), _colour(gpu.busy)),
        f"  {memory:<17}  {power:<12}  {heat:<5}",
        (f"  {count} proc" if count else "", _MUTED),
    )
    return _with_history(head, history.of(str(gpu.index)), width)


def _with_history(head: Content, values: Sequence[float], width: int) -> Content:
    """Return `head` followed by the history, which fills the rest of the line."""
    return head + Content.styled("  " + sparkline(values, width - head.cell_length - 2), "$text-success")


def _cpu(cpu: Cpu, history: DeviceHistory, width: int) -> list[Content]:
    memory = f"{_bytes(cpu.memory)} of {_bytes(cpu.memory_total)}"
    head = Content.assemble(
        (f"{'CPU':<16} ", "bold $text-primary"),
        (_share(cpu.busy), _colour(cpu.busy)),
        f"  {memory:<17}  load {cpu.load:<7.1f}",
    )
    cores = sparkline(cpu.cores, min(len(cpu.cores), max(0, width - 24)))
    first = _with_history(head, history.of("cpu"), width)
    return [first, Content.assemble((f"  {len(cpu.cores)} cores, each now  ", _MUTED), (cores, "$text-success"))]


def _share(busy: float | None) -> str:
    return "   ?" if busy is None else f"{busy:3.0f}%"


def _colour(busy: float | None) -> str:
    return _MUTED if busy is None or busy < 5 else "$text-success" if busy < 90 else "$text-warning"


def _bytes(value: int | None) -> str:
    return "?" if value is None else f"{value / 2**30:.1f}G" if value < 100 << 30 else f"{value / 2**30:.0f}G"
