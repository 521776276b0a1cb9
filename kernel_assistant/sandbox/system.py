"""The files of the machine that every sandboxed process may read, and further files for processes that use a GPU."""

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
    """Returns the existing device nodes of GPUs and folders of such nodes (`/dev/nvidia-caps`)."""
    return tuple(sorted(path for pattern in GPU_DEVICES for path in glob.glob(pattern)))


def driver_paths(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the folders of the driver's libraries: the usual ones, and those of LD_LIBRARY_PATH with libcuda."""
    folders = (*DRIVER_FOLDERS, *driver_library_folders(environ))
    return tuple(dict.fromkeys(path for path in folders if os.path.exists(path)))


def driver_library_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    named = environ.get("LD_LIBRARY_PATH", "").split(":")
    usual = [os.path.join(folder, name) for folder in DRIVER_FOLDERS for name in ("lib64", "lib")]
    folders = [
        path for path in (*named, *usual) if path.startswith("/") and glob.glob(f"{glob.escape(path)}/libcuda.so*")
    ]
    return tuple(dict.fromkeys(folders))


def gpu_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables for a GPU: LD_LIBRARY_PATH for a driver that is not in the loader's cache,
    CUDA_VISIBLE_DEVICES if it is set, and the order of GPUs."""
    folders = driver_library_folders(environ)
    variables = {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}
    if "CUDA_VISIBLE_DEVICES" in environ:
        variables["CUDA_VISIBLE_DEVICES"] = environ["CUDA_VISIBLE_DEVICES"]
    return {**variables, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
