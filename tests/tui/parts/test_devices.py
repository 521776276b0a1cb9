"""Devices: this machine for real, and a driver that refuses calls as real drivers do."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.devices.machine import KEPT, DeviceHistory, DeviceMonitor
from kernel_assistant_tui.devices.nvml import NO_DRIVER, TRY_AGAIN_S, Nvml, name_of
from kernel_assistant_tui.devices.reading import Cpu, DeviceSample, Gpu, Process
from kernel_assistant_tui.widgets.devices import Devices
from kernel_assistant_tui.widgets.gauges import NAMELESS, device_lines, sparkline
from tests.common.clocks import Moved
from tests.tui.parts.hosting import hosted, until


def error(code):
    return pynvml.NVMLError(code)


def shown(*gpus):
    lines = device_lines(DeviceSample(gpus, Cpu((1.0,), 1, 2, 0.0)), DeviceHistory(), 100, 20)
    return "\n".join(line.plain for line in lines)


class Driver:
    """NVML on a machine with two GPUs; `refused` names the calls that fail, and their errors."""

    def __init__(self, **refused):
        self.refused = {f"nvml{name}": code for name, code in refused.items()}
        self.said = []

    def __getattr__(self, name):
        if name.startswith("NVML") or name == "nvmlMemory_v2":
            return getattr(pynvml, name)
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetHandleByIndex": 7,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=61 << 30, total=141 << 30),
            "nvmlDeviceGetPowerUsage": 430_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTemperature": 54,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=1, usedGpuMemory=None)],
        }
        if name not in answers:
            raise AttributeError(name)

        def call(*arguments):
            self.said.append(name)
            if name in self.refused:
                raise error(self.refused[name])
            return answers[name]

        return call


def listing(*processes):
    """The GPUs of a driver that lists processes with these numbers and bytes."""
    listed = [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in processes]
    driver = Driver()
    driver.nvmlDeviceGetComputeRunningProcesses = lambda handle: listed
    return Nvml(driver).read()[0]


def test_what_the_driver_says():
    gpus, trouble = Nvml(Driver()).read()
    assert trouble == "" and len(gpus) == 2
    first = gpus[0]
    assert (first.name, first.busy, first.power, first.power_limit) == ("H200", 87, 430.0, 700.0)
    assert (first.memory, first.temperature, first.note) == (61 << 30, 54, "")
    assert first.processes[0].pid == 1 and first.processes[0].memory is None


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("DeviceGetUtilizationRates", "busy"),
        ("DeviceGetMemoryInfo", "memory"),
        ("DeviceGetPowerUsage", "power"),
        ("DeviceGetEnforcedPowerLimit", "power_limit"),
        ("DeviceGetTemperature", "temperature"),
    ],
)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_what_it_does_not_say_is_left_out(call, field, code):
    gpus, trouble = Nvml(Driver(**{call: code})).read()
    assert trouble == "" and getattr(gpus[0], field) is None
    assert "?" in shown(*gpus).splitlines()[0]


def test_mig_is_named():
    driver = Driver(DeviceGetUtilizationRates=pynvml.NVML_ERROR_NOT_SUPPORTED)
    driver.nvmlDeviceGetMigMode = lambda handle: [1, 1]
    gpus, _ = Nvml(driver).read()
    assert gpus[0].note.startswith("MIG is on")


def test_a_driver_that_is_not_there_is_asked_again_now_and_then():
    now = Moved()
    driver = Driver(Init=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    nvml = Nvml(driver, clock=now)
    assert nvml.read() == nvml.read() == ((), NO_DRIVER + "Driver Not Loaded")
    assert driver.said.count("nvmlInit") == 1
    driver.refused.clear()
    now.seconds += TRY_AGAIN_S
    assert len(nvml.read()[0]) == 2
    nvml.close()
    assert driver.said[-1] == "nvmlShutdown"


@pytest.mark.parametrize("at_the_end", [None, pynvml.NVML_ERROR_UNINITIALIZED])
@pytest.mark.parametrize("call", ["DeviceGetCount", "DeviceGetTemperature"])
def test_a_driver_that_goes_away_is_told_and_looked_for_again(call, at_the_end):
    now = Moved()
    driver = Driver()
    nvml = Nvml(driver, clock=now)
    assert len(nvml.read()[0]) == 2
    driver.refused = {f"nvml{call}": pynvml.NVML_ERROR_UNINITIALIZED}
    if at_the_end is not None:
        driver.refused["nvmlShutdown"] = at_the_end
    assert nvml.read() == ((), NO_DRIVER + "Uninitialized")
    driver.refused.clear()
    now.seconds += TRY_AGAIN_S
    assert len(nvml.read()[0]) == 2


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NO_PERMISSION])
def test_one_gpu_that_cannot_be_talked_to_hides_no_other(code):
    now = Moved()
    driver = Driver()

    def handle(index):
        if index == 1:
            raise error(code)
        return 7

    driver.nvmlDeviceGetHandleByIndex = handle
    nvml = Nvml(driver, clock=now)
    (first, second), trouble = nvml.read()
    assert trouble == "" and first.busy == 87
    assert (second.index, second.busy, second.note) == (1, None, str(error(code)).removesuffix("."))
    assert second.note in shown(first, second)
    del driver.nvmlDeviceGetHandleByIndex
    assert len(nvml.read()[0]) == 2 and driver.said.count("nvmlInit") == 1
    now.seconds += TRY_AGAIN_S
    assert nvml.read()[0][1].busy == 87 and driver.said.count("nvmlInit") == 2


def test_an_older_driver_than_the_binding_wants_lists_no_processes():
    driver = Driver()

    def mismatch(handle):
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    driver.nvmlDeviceGetComputeRunningProcesses = mismatch
    gpus, trouble = Nvml(driver).read()
    assert trouble == "" and gpus[0].processes == () and gpus[0].busy == 87


def test_memory_is_counted_as_nvidia_smi_does_where_the_driver_can():
    driver = Driver()
    answers = {pynvml.nvmlMemory_v2: 60 << 30, None: 61 << 30}

    def memory(handle, version=None):
        if version not in answers:
            raise error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(used=answers[version], total=141 << 30)

    driver.nvmlDeviceGetMemoryInfo = memory
    assert Nvml(driver).read()[0][0].memory == 60 << 30
    del answers[pynvml.nvmlMemory_v2]
    assert Nvml(driver).read()[0][0].memory == 61 << 30


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([], "  0: 61.0G in use by processes that the driver does not list here"),
        ([2 << 30], "  0: 59.0G in use by processes that the driver does not list here"),
        ([60 << 30], ""),
        ([2 << 30, None], ""),
    ],
)
def test_memory_of_processes_that_are_not_listed_is_said(listed, said):
    gpus = listing(*((1, memory) for memory in listed))
    assert said in shown(gpus[0]) if said else "does not list" not in shown(gpus[0])


def test_a_number_of_another_container_gets_no_name_of_this_one():
    # This process has no context: whoever computes as its number is somebody else.
    gpus = listing((os.getpid(), 1 << 30), (2**31 - 1, None))
    assert [one.name for one in gpus[0].processes] == ["", ""]
    assert shown(gpus[0]).count(NAMELESS) == 2


def test_a_process_that_has_the_driver_has_its_name(tmp_path):
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"\0" * mmap.PAGESIZE)
    program = (
        "import mmap, sys; file = open(sys.argv[1], 'rb'); "
        "kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        assert name_of(child.pid) == psutil.Process(child.pid).name()
        child.stdin.close()


def test_history_keeps_two_minutes():
    history = DeviceHistory()
    for busy in range(KEPT + 10):
        history.add(DeviceSample((Gpu(0, "A", busy=busy % 100),), Cpu((5.0, 15.0), 1, 4, 0.0)))
    assert len(history.of("0")) == KEPT and history.of("0")[-1] == (KEPT + 9) % 100
    assert history.of("cpu")[-1] == 10.0 and history.of("cpu memory")[-1] == 25.0
    assert history.of("1") == ()


def test_a_sparkline_is_as_wide_as_it_is_asked_to_be():
    assert sparkline([0, 50, 100], 5) == "   ▄█"
    assert sparkline([100] * 9, 4) == "████"
    assert sparkline([1], 0) == ""


@pytest.mark.parametrize("width", [0, 20, 40, 80, 200])
def test_processes_get_the_lines_that_are_left(width):
    gpus = tuple(Gpu(n, "H200", processes=(Process(n, "python", 1 << 30),) * 3) for n in range(4))
    reading = DeviceSample(gpus, Cpu((1.0,), 1, 2, 0.0))
    lines = [line.plain for line in device_lines(reading, DeviceHistory(), width, 9)]
    assert len(lines) == 9 and lines[-1] == "  and 10 more processes"
    assert len(device_lines(reading, DeviceHistory(), width, 40)) == 6 + 12


@pytest.mark.asyncio
async def test_this_machine():
    reading = DeviceMonitor().read()
    assert reading.cpu.cores and 0 < reading.cpu.memory < reading.cpu.memory_total
    assert bool(reading.gpus) != bool(reading.trouble)
    async with hosted(Devices(), (100, 9)) as (app, pilot):
        await until(pilot, "cores, each now")
        if reading.trouble:
            assert reading.trouble in app.shown
        for size in ((20, 3), (1, 1), (100, 9)):
            await pilot.resize_terminal(*size)
        await until(pilot, "cores, each now")


@pytest.mark.timed
@pytest.mark.asyncio
async def test_while_it_is_not_seen_nothing_is_asked(monkeypatch):
    monkeypatch.setattr("kernel_assistant_tui.widgets.devices.EVERY_S", 0.02)
    asked = []

    class Counting(DeviceMonitor):
        def read(self):
            asked.append(1)
            return super().read()

    async with hosted(Devices(Counting()), (100, 9)) as (app, pilot):
        await until(pilot, lambda: len(asked) > 2)
        app.widget.display = False
        await pilot.pause(0.1)
        before = len(asked)
        await pilot.pause(0.3)
        assert len(asked) <= before + 1
        app.widget.display = True
        await until(pilot, lambda: len(asked) > before + 2)


@pytest.mark.asyncio
async def test_a_driver_that_hangs_holds_nothing_up():
    stuck = threading.Event()

    class Slow(DeviceMonitor):
        def read(self):
            stuck.wait(60)
            return super().read()

    async with hosted(Devices(Slow()), (100, 9)) as (app, pilot):
        await pilot.pause(0.2)
        assert "reading" in app.shown
        stuck.set()
        await until(pilot, "cores, each now")
        assert await in_thread(lambda: 1) == 1
