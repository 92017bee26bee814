"""GPUs and NPUs: device files, libraries and drivers."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...runtime.system.files import paths_below, text_of
from ..protocol import Answer, Request
from ..system import ASK_S, ask, shown

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


def devices(root: Path, patterns: Sequence[str]) -> list[Answer]:
    """Return the devices that patterns name: files, or ``USB VENDOR:PRODUCT``."""
    nodes = [path for pattern in patterns for path in paths_below(root, pattern.lstrip("/"))]
    entries = [
        {
            "path": shown(path, root),
            "driver": device_driver(root, path),
            "may_open": os.access(str(path), os.R_OK | os.W_OK),
        }
        for path in nodes
    ]
    for folder in paths_below(root, "sys/bus/usb/devices/*"):
        name = f"USB {text_of(folder / 'idVendor')}:{text_of(folder / 'idProduct')}"
        if name in patterns:
            entries.append({"path": name, "driver": text_of(folder / "product"), "may_open": True})
    return entries


def device_driver(root: Path, node: Path) -> str:
    """Return the name of the driver behind a node in /dev/dri; empty for others."""
    if node.parent.name != "dri":
        return ""
    match = re.search(
        r"(?m)^DRIVER=(\S+)", text_of(root / "sys/class/drm" / node.name / "device/uevent")
    )
    return match.group(1) if match else ""


def libraries(root: Path, patterns: Sequence[str]) -> list[Answer]:
    paths: dict[str, str] = {}
    for folder in library_folders(root):
        for name in sorted(names_in(folder)):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                paths.setdefault(name, shown(folder / name, root))
    return [{"name": name, "path": paths[name]} for name in sorted(paths)]


def library_folders(root: Path) -> list[Path]:
    """Return the folders that may hold libraries, in the order in which programs search them."""
    configured = [Path(name) for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name]
    listed = [
        line.strip()
        for path in paths_below(root, "etc/ld.so.conf.d/*.conf")
        for line in text_of(path).splitlines()
        if line.strip().startswith("/")
    ]
    folders = (configured if root == Path("/") else []) + [
        root / name.lstrip("/") for name in listed
    ]
    folders += [path for pattern in LIBRARY_FOLDERS for path in paths_below(root, pattern)]
    first: dict[str, Path] = {}
    for folder in folders:
        first.setdefault(os.path.realpath(str(folder)), folder)  # /lib is a link as a rule
    return list(first.values())


def names_in(folder: Path) -> list[str]:
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
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    ended = ask([sys.executable, "-c", code, wanted["name"]], wanted["environment"])
    if ended is None:
        return f"loading it takes longer than {ASK_S} s"
    if ended.returncode < 0:
        return f"loading it ends the program by signal {-ended.returncode}"
    lines = ended.stdout.strip().splitlines()
    return lines[-1].replace("OSError: ", "") if ended.returncode and lines else ""
