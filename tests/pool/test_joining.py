"""Hosts that cannot join: with another version, or of another kind."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.ppo.pool.hosts import HostReady
from kernel_assistant_training.ppo.pool.kind import device_kind, hold_apart, hold_to_version, hold_together, own_version

H200 = DeviceFacts(target="cuda", name="NVIDIA H200", arch="sm_90", driver="580.65.06", threads=192)
READY = HostReady(workers=8, device=H200, toolkit="Build cuda_13.0.r13.0", torch="2.11.0+cu130")


def other(**changed):
    facts = {name: changed.pop(name) for name in ("name", "arch", "driver") if name in changed}
    return msgspec.structs.replace(READY, device=msgspec.structs.replace(H200, **facts), **changed)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (other(name="NVIDIA H100 80GB HBM3"), "b has device NVIDIA H100 80GB HBM3; a has device NVIDIA H200: "),
        (other(driver="570.10.01"), "b has driver 570; a has driver 580: "),
        (other(toolkit="Build cuda_12.8", torch="2.10.0"), "b has toolkit Build cuda_12.8, torch 2.10.0; a has "),
    ],
)
def test_another_kind_of_machine_is_refused_with_both_named(machine, said):
    with pytest.raises(UsageError, match=said.replace("+", r"\+")):
        hold_together("a", READY, "b", machine)


def test_fixes_of_a_driver_and_other_processors_compare():
    hold_together("a", READY, "b", other(driver="580.95.05", workers=2))
    assert device_kind(H200) == device_kind(msgspec.structs.replace(H200, threads=16, driver="", index=3))
    assert device_kind(H200) != device_kind(msgspec.structs.replace(H200, name="NVIDIA H100 80GB HBM3"))
    processor = DeviceFacts(target="cpu", name="x", arch="x86-64", threads=2)
    assert device_kind(processor) != device_kind(msgspec.structs.replace(processor, threads=4))


def test_one_gpu_by_two_names_is_refused():
    one, two = other(gpus=("GPU-a", "GPU-b")), other(gpus=("GPU-c",))
    hold_apart("this machine", one, "box", two)
    with pytest.raises(UsageError, match=r"box and this machine have the same GPU \(GPU-b\)"):
        hold_apart("this machine", one, "box", other(gpus=("GPU-c", "GPU-b")))


@pytest.mark.gpu
def test_gpus_have_names_of_their_own():
    assert len(set(cuda.identities())) == len(cuda.gpus()) and all(cuda.identities())


def test_another_version_or_other_files_are_refused():
    ours = own_version()
    hold_to_version("box", dict(ours))
    with pytest.raises(UsageError, match=r"box has kernel-assistant 0\.0\.9, this machine kernel-assistant ") as caught:
        hold_to_version("box", {**ours, "version": "0.0.9"})
    assert ours["version"] in caught.value.next_step
    with pytest.raises(UsageError, match=r"with other files \(0123\), this machine"):
        hold_to_version("box", {**ours, "digest": "0123"})
