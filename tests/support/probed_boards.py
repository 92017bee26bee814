"""File trees like those of real boards, and reports as a board with such a tree would give them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rankslice.backend.agent.probe.machine_files import hardware
from rankslice.backend.boards.probed import BoardReport, Environment
from rankslice.backend.boards.usable_accelerators import searched
from rankslice.framework.reading.records import read_record

CPU = "sys/devices/system/cpu"
ZONE = "sys/class/thermal/thermal_zone"
LIBRARIES = "usr/lib/aarch64-linux-gnu"


def arm_cores(parts: list[str], model: str = "") -> str:
    """Return what /proc/cpuinfo says of Arm cores with these part numbers."""
    blocks = [
        f"processor\t: {number}\nBogoMIPS\t: 38.40\nCPU implementer\t: 0x41\nCPU part\t: {part}\n"
        for number, part in enumerate(parts)
    ]
    return "\n".join([*blocks, f"Model\t\t: {model}\n" if model else ""])


def policy(number: int, cores: str, least_khz: int, most_khz: int) -> dict[str, str]:
    """Return the files of a cpufreq policy."""
    folder = f"{CPU}/cpufreq/policy{number}"
    return {
        f"{folder}/related_cpus": f"{cores}\n",
        f"{folder}/cpuinfo_min_freq": f"{least_khz}\n",
        f"{folder}/cpuinfo_max_freq": f"{most_khz}\n",
    }


def capacities(values: list[int]) -> dict[str, str]:
    """Return the files with the capacity of each core."""
    return {f"{CPU}/cpu{core}/cpu_capacity": f"{value}\n" for core, value in enumerate(values)}


def empty_files(*names: str) -> dict[str, str]:
    """Return files that only have to be there."""
    return dict.fromkeys(names, "")


RUBIK_PI: dict[str, str] = {
    "proc/device-tree/model": "Thundercomm, Inc. RUBIK Pi 3\0",
    "proc/cpuinfo": arm_cores(["0xd05"] * 4 + ["0xd41"] * 4),
    "proc/meminfo": "MemTotal:        7731204 kB\nMemFree: 10 kB\nMemAvailable:    6215680 kB\n",
    "proc/self/status": "Name:\tpython3\nCpus_allowed_list:\t0-7\n",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    f"{CPU}/online": "0-7\n",
    **policy(0, "0 1 2 3", 300000, 1958400),
    **policy(4, "4 5 6", 691200, 2400000),
    **policy(7, "7", 806400, 2707200),
    **capacities([343, 343, 343, 343, 908, 908, 908, 1024]),
    **{f"{ZONE}{n}/type": f"cpu{n}-thermal\n" for n in (0, 1, 2)},
    **{f"{ZONE}{n}/temp": "47300\n" for n in (0, 1, 2)},
    f"{ZONE}10/type": "nspss0-thermal\n",
    f"{ZONE}10/temp": "44600\n",
    **empty_files(
        "dev/kgsl-3d0",
        "dev/dri/renderD128",
        "dev/fastrpc-cdsp",
        "dev/fastrpc-adsp",
        f"{LIBRARIES}/libOpenCL.so.1",
        f"{LIBRARIES}/libcdsprpc.so.1",
        "usr/lib/libQnnTFLiteDelegate.so",
        "usr/lib/libQnnHtp.so",
        "usr/lib/libtensorflowlite_gpu_delegate.so",
        "usr/lib/rfsa/adsp/libQnnHtpV68Skel.so",
    ),
    "sys/class/drm/renderD128/device/uevent": "DRIVER=msm_dpu\nOF_NAME=display-controller\n",
}

RASPBERRY_PI: dict[str, str] = {
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/cpuinfo": arm_cores(["0xd0b"] * 4, "Raspberry Pi 5 Model B Rev 1.0"),
    "proc/meminfo": "MemTotal:        8256400 kB\nMemAvailable:    7340032 kB\n",
    "proc/self/status": "Cpus_allowed_list:\t0-3\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    f"{CPU}/online": "0-3\n",
    **policy(0, "0 1 2 3", 1500000, 2400000),
    f"{ZONE}0/type": "cpu-thermal\n",
    f"{ZONE}0/temp": "51550\n",
    "sys/class/hwmon/hwmon2/name": "rpi_volt\n",
    "sys/class/hwmon/hwmon2/in0_lcrit_alarm": "0\n",
    **empty_files("dev/dri/renderD128", f"{LIBRARIES}/libvulkan.so.1"),
    "usr/share/vulkan/icd.d/broadcom_icd.aarch64.json": "{}",
    "usr/share/vulkan/icd.d/lvp_icd.aarch64.json": "{}",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=v3d\n",
    "sys/bus/usb/devices/1-1/idVendor": "18d1\n",
    "sys/bus/usb/devices/1-1/idProduct": "9302\n",
    "sys/bus/usb/devices/1-1/product": "Coral Edge TPU\n",
}

JETSON: dict[str, str] = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "proc/cpuinfo": arm_cores(["0xd42"] * 6),
    "proc/meminfo": "MemTotal:        7802216 kB\nMemAvailable:    6000000 kB\n",
    "proc/self/status": "Cpus_allowed_list:\t0-5\n",
    f"{CPU}/online": "0-3\n",  # two are switched off by its power mode
    **policy(0, "0 1 2 3", 115200, 1510400),
    "sys/class/hwmon/hwmon1/name": "ina3221\n",
    "sys/class/hwmon/hwmon1/in1_label": "VDD_IN\n",
    "sys/class/hwmon/hwmon1/in1_input": "5040\n",
    "sys/class/hwmon/hwmon1/curr1_input": "1200\n",
    **empty_files("dev/nvhost-gpu", "dev/nvmap", f"{LIBRARIES}/tegra/libcuda.so.1"),
}

PC: dict[str, str] = {
    "sys/class/dmi/id/sys_vendor": "LENOVO\n",
    "sys/class/dmi/id/product_name": "30E0S00\n",
    "proc/cpuinfo": "\n\n".join(
        f"processor\t: {core}\nmodel name\t: Intel(R) Core(TM) i7-9850H CPU @ 2.60GHz"
        for core in range(4)
    ),
    "proc/meminfo": "MemTotal:       16263044 kB\nMemAvailable:   12000000 kB\n",
    "proc/self/status": "Cpus_allowed_list:\t0-3\n",
    f"{CPU}/online": "0-3\n",
    **{
        name: text
        for core in range(4)
        for name, text in policy(core, f"{core}", 800000, 4600000).items()
    },
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "4711\n",
    **empty_files("dev/dri/renderD128", "usr/lib/x86_64-linux-gnu/libvulkan.so.1"),
    "usr/share/vulkan/icd.d/lvp_icd.x86_64.json": "{}",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=i915\n",
}


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """Return a folder that holds these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def environment(**packages: str) -> Environment:
    """Return a Python with packages, whose names have ``_`` for ``-``."""
    named = {name.replace("_", "-"): version for name, version in packages.items()}
    return Environment("/usr/bin/python3", "3.12.3", tuple(named.items()), (), "")


def report_of(root: Path, files: dict[str, str], software: Environment, **more: Any) -> BoardReport:
    """Return what a board with these files and this Python would report."""
    told = {
        **hardware(make_tree(root, files), searched()),
        "hostname": "edge01",
        "arch": "aarch64",
        "disk_free_mb": 12000,
        "home": "/home/pi",
        "interfaces": [],
        "address": "192.168.1.11",
        "caller": "192.168.1.2",
        "has_rsync": True,
        "environments": [
            {
                **asdict(software),
                "packages": dict(software.packages),
                "providers": [*software.providers],
            }
        ],
        "open_mpi": [],
    }
    report = read_record(BoardReport, told, "edge01")
    return replace(report, **more)
