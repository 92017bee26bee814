"""GPUs and NPUs: device files, libraries and drivers."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...runtime.system.files import paths_below, text_of
from ..protocol import Answer, Request
from ..system import ASK_S, ask, shown

DEVICES = (
    "dev/dri/renderD*",
    "dev/kgsl-3d0",
    "dev/mali[0-9]*",
    "dev/nvidia[0-9]*",
    "dev/nvhost-gpu",
    "dev/nvmap",
    "dev/adsprpc*",
    "dev/fastrpc-*",
    "dev/ethosu[0-9]*",
    "dev/apex_[0-9]*",
    "dev/galcore",
    "dev/rknpu*",
    "dev/hailo[0-9]*",
    "dev/accel/accel[0-9]*",
)

USB_DEVICES = {("1a6e", "089a"): "Coral Edge TPU", ("18d1", "9302"): "Coral Edge TPU"}
ENGINE_LIBRARIES = (
    "libOpenCL.so*",
    "libvulkan.so*",
    "libtensorflowlite_gpu_delegate.so*",
    "libQnnTFLiteDelegate.so*",
    "libQnnHtp.so*",
    "libQnnHtpV*Skel.so*",
    "libcdsprpc.so*",
    "libadsprpc.so*",
    "libethosu_delegate.so*",
    "libedgetpu.so*",
    "libvx_delegate.so*",
    "libarmnnDelegate.so*",
    "libcuda.so*",
    "libnvinfer.so*",
    "libcudnn.so*",
)

LIBRARY_FOLDERS = (
    "lib",
    "usr/lib",
    "lib64",
    "usr/lib64",
    "usr/local/lib",
    "lib/*-linux-gnu*",
    "usr/lib/*-linux-gnu*",
    "usr/lib/*-linux-gnu*/tegra",
    "usr/lib/*-linux-gnu*/nvidia",
    "usr/local/cuda/lib64",
    "vendor/lib64",
    "opt/*/lib",
    "opt/*/*/lib",
    "usr/lib/rfsa/adsp",
    "usr/lib/dsp",
    "usr/lib/dsp/*",
    "usr/share/qcom/*/*/*/dsp",
    "usr/share/qcom/*/*/*/dsp/*",
    "dsp",
    "dsp/*",
)
"""Folders of libraries of GPUs and NPUs, besides those that the loader is configured for."""
ICDS = ("usr/share/vulkan/icd.d/*.json", "etc/vulkan/icd.d/*.json", "etc/OpenCL/vendors/*.icd")
"""Files by which drivers of Vulkan and OpenCL are found."""


def devices(root: Path) -> list[Answer]:
    nodes = [path for pattern in DEVICES for path in paths_below(root, pattern)]
    entries = [
        {
            "path": shown(path, root),
            "driver": device_driver(root, path),
            "may_open": os.access(str(path), os.R_OK | os.W_OK),
        }
        for path in nodes
    ]
    return entries + list(usb_devices(root))


def device_driver(root: Path, node: Path) -> str:
    """Return the name of the driver behind a node in /dev/dri; empty for others."""
    if node.parent.name != "dri":
        return ""
    match = re.search(
        r"(?m)^DRIVER=(\S+)", text_of(root / "sys/class/drm" / node.name / "device/uevent")
    )
    return match.group(1) if match else ""


def usb_devices(root: Path) -> Iterator[Answer]:
    for folder in paths_below(root, "sys/bus/usb/devices/*"):
        ids = (text_of(folder / "idVendor"), text_of(folder / "idProduct"))
        if ids in USB_DEVICES:
            yield {"path": f"USB {ids[0]}:{ids[1]}", "driver": USB_DEVICES[ids], "may_open": True}


def libraries(root: Path) -> list[Answer]:
    """Return the libraries of GPUs and NPUs, each where the loader would find it first."""
    paths: dict[str, str] = {}
    for folder in library_folders(root):
        for name in sorted(names_in(folder)):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in ENGINE_LIBRARIES):
                paths.setdefault(name, shown(folder / name, root))
    return [{"name": name, "path": paths[name]} for name in sorted(paths)]


def library_folders(root: Path) -> list[Path]:
    """Return the folders that may hold libraries, in the order in which programs search them."""
    told = [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    listed = [
        line.strip()
        for path in paths_below(root, "etc/ld.so.conf.d/*.conf")
        for line in text_of(path).splitlines()
        if line.strip().startswith("/")
    ]
    folders = (told if root == Path("/") else []) + [root / name.lstrip("/") for name in listed]
    folders += [path for pattern in LIBRARY_FOLDERS for path in paths_below(root, pattern)]
    first: dict[str, Path] = {}
    for folder in folders:
        first.setdefault(os.path.realpath(str(folder)), folder)  # /lib is a link as a rule
    return list(first.values())


def names_in(folder: Path) -> list[str]:
    """Return the names of what a folder has; none if it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def load(request: Request) -> Answer:
    """Try to load delegate libraries; return a complaint for each, empty if it was loaded.

    A library may crash the process that loads it, so each gets a process of its own.
    """
    with ThreadPoolExecutor(8) as pool:
        return {"complaints": list(pool.map(load_complaint, request["libraries"]))}


def load_complaint(wanted: Request) -> str:
    """Return what keeps a library from being loaded; empty: nothing."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    ended = ask([sys.executable, "-c", code, wanted["name"]], wanted["environment"])
    if ended is None:
        return f"loading it takes longer than {ASK_S} s"
    if ended.returncode < 0:
        return f"loading it ends the program by signal {-ended.returncode}"
    lines = ended.stdout.strip().splitlines()
    return lines[-1].replace("OSError: ", "") if ended.returncode and lines else ""
