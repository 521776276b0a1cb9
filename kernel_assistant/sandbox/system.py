"""What of the machine everybody may read, and what a GPU needs besides."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# /usr/bin/g++ is a link into /etc/alternatives; the loader needs its cache and configuration.
SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROCESS_FACTS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")

GPU_DEVICES = ("/dev/nvidia*", "/dev/dxg")
GPU_FACTS = ("/sys", "/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/proc/version", "/proc/stat")
DRIVER_FOLDERS = ("/usr/local/nvidia", "/usr/lib/wsl", "/run/opengl-driver", "/etc/nvidia", "/etc/vulkan")


def gpu_devices() -> tuple[str, ...]:
    """Device nodes and folders of them (`/dev/nvidia-caps`), as they are on this machine now."""
    return tuple(sorted(path for pattern in GPU_DEVICES for path in glob.glob(pattern)))


def driver_paths(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the driver's libraries lie: the usual folders, and those of LD_LIBRARY_PATH that hold libcuda."""
    folders = (*DRIVER_FOLDERS, *driver_library_folders(environ))
    return tuple(dict.fromkeys(path for path in folders if os.path.exists(path)))


def driver_library_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    named = environ.get("LD_LIBRARY_PATH", "").split(":")
    usual = [os.path.join(folder, name) for folder in DRIVER_FOLDERS for name in ("lib64", "lib")]
    found = [
        path for path in (*named, *usual) if path.startswith("/") and glob.glob(f"{glob.escape(path)}/libcuda.so*")
    ]
    return tuple(dict.fromkeys(found))


def gpu_env(environ: Mapping[str, str]) -> dict[str, str]:
    """LD_LIBRARY_PATH for a driver that the loader's cache does not know, and how a worker numbers GPUs."""
    folders = driver_library_folders(environ)
    found = {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}
    if "CUDA_VISIBLE_DEVICES" in environ:
        found["CUDA_VISIBLE_DEVICES"] = environ["CUDA_VISIBLE_DEVICES"]
    return {**found, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
