"""What a board says of itself, by the files that it has; and what it needs for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from probed_boards import CPU, JETSON, PC, RASPBERRY_PI, RUBIK_PI, make_tree, policy

from rankslice.backend.agent.probe.environments import environment, open_mpi
from rankslice.backend.agent.probe.machine_files import clusters, hardware, listed_cores
from rankslice.backend.agent.probe.network import interfaces
from rankslice.backend.boards.conversation import packages_of_jobs
from rankslice.backend.boards.ssh import agent_program
from rankslice.backend.boards.usable_accelerators import searched
from rankslice.backend.runtime.system.files import by_number

PROGRAM = agent_program("probe", "main()").partition(b"\n")[2].decode()
TREES = {"RUBIK Pi": RUBIK_PI, "Raspberry Pi": RASPBERRY_PI, "Jetson": JETSON, "PC": PC}
PYENV = Path.home() / ".pyenv" / "versions"


def answers(python: str | Path, *requests: dict[str, object]) -> list[dict[str, object]]:
    """Return what the program answers, run by a Python of the tests' choice."""
    lines = "".join(json.dumps({"over_ssh": False, **request}) + "\n" for request in requests)
    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr
    marked = [line.removeprefix("rankslice-answer ") for line in done.stdout.splitlines()]
    return [json.loads(line) for line in marked]


def test_an_older_python_without_any_package_tells_all_the_same() -> None:
    older = sorted(PYENV.glob("3.8.*/bin/python3"))
    if not older:
        pytest.skip(f"there is no Python 3.8 in {PYENV} (pyenv install 3.8)")
    (answer,) = answers(
        older[0], {"action": "report", "packages": packages_of_jobs(), "searched": searched()}
    )
    (own,) = answer["environments"]  # type: ignore[misc]
    assert own["version"].startswith("3.8.")
    assert {} == own["packages"]
    assert [sorted(os.sched_getaffinity(0))] == [answer["cores"]]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("echo 'Traceback:' >&2; echo 'ImportError: no module named json' >&2", "no module named"),
        ("exit 3", "it ended with exit code 3"),
    ],
)
def test_a_python_that_does_not_run_tells_why(program: str, why: str, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    answer = environment(str(python), {})
    assert "" == answer["version"]
    assert why in answer["library"]


def test_each_request_is_answered_until_there_are_no_more() -> None:
    answered = answers(sys.executable, {"action": "clock"}, {"action": "addresses"})
    assert [{"now_us"}, {"interfaces"}] == [set(answer) for answer in answered]


@pytest.mark.parametrize(
    ("name", "model", "source"),
    [
        ("RUBIK Pi", "Thundercomm, Inc. RUBIK Pi 3", "/proc/device-tree/model"),
        ("Raspberry Pi", "Raspberry Pi 5 Model B Rev 1.0", "/proc/device-tree/model"),
        ("PC", "LENOVO 30E0S00", "/sys/class/dmi/id"),
    ],
)
def test_the_model_comes_from_device_tree_or_dmi(
    name: str, model: str, source: str, tmp_path: Path
) -> None:
    answer = hardware(make_tree(tmp_path, TREES[name]), searched())
    assert (model, source) == (answer["model"], answer["model_source"])


def test_cores_are_grouped_by_kind_speed_and_capacity(tmp_path: Path) -> None:
    groups = [
        (row["cores"], row["kind"], row["least_mhz"], row["most_mhz"], row["capacity"])
        for row in clusters(make_tree(tmp_path, RUBIK_PI))
    ]
    assert [
        ([0, 1, 2, 3], "Cortex-A55", 300, 1958, 343),
        ([4, 5, 6], "Cortex-A78", 691, 2400, 908),
        ([7], "Cortex-A78", 806, 2707, 1024),
    ] == groups


def test_equal_cores_with_policies_of_their_own_are_one_cluster(tmp_path: Path) -> None:
    (only,) = clusters(make_tree(tmp_path, PC))
    assert ([0, 1, 2, 3], 800, 4600) == (only["cores"], only["least_mhz"], only["most_mhz"])
    assert "Intel(R) Core(TM) i7-9850H CPU @ 2.60GHz" == only["kind"]


def test_cores_that_are_switched_off_are_left_out(tmp_path: Path) -> None:
    assert [0, 1, 2, 3] == hardware(make_tree(tmp_path, JETSON), searched())["cores"]


def test_cores_without_cpufreq_have_no_frequency(tmp_path: Path) -> None:
    files = {name: text for name, text in RASPBERRY_PI.items() if "cpufreq" not in name}
    (only,) = clusters(make_tree(tmp_path, files))
    assert (None, None, "") == (only["least_mhz"], only["most_mhz"], only["source"])


def test_a_core_of_an_unknown_maker_is_told_by_its_numbers(tmp_path: Path) -> None:
    text = "processor\t: 0\nCPU implementer\t: 0x51\nCPU part\t: 0x804\n"
    files = {"proc/cpuinfo": text, "proc/self/status": "Cpus_allowed_list:\t0\n"}
    assert "implementer 0x51, part 0x804" == clusters(make_tree(tmp_path, files))[0]["kind"]


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-3,6", [0, 1, 2, 3, 6]), ("0 1 2", [0, 1, 2]), ("7\n", [7]), ("", [])],
)
def test_lists_of_cores_are_read_in_both_forms(text: str, cores: list[int]) -> None:
    assert cores == listed_cores(text)


def test_memory_is_in_mib(tmp_path: Path) -> None:
    answer = hardware(make_tree(tmp_path, RUBIK_PI), searched())
    assert (7550, 6070) == (answer["memory_mb"], answer["available_mb"])


def test_devices_come_with_their_driver(tmp_path: Path) -> None:
    devices = hardware(make_tree(tmp_path, RASPBERRY_PI), searched())["devices"]
    assert [("/dev/dri/renderD128", "v3d"), ("USB 18d1:9302", "Coral Edge TPU")] == [
        (device["path"], device["driver"]) for device in devices
    ]


def test_libraries_are_found_where_vendors_put_them(tmp_path: Path) -> None:
    libraries = hardware(make_tree(tmp_path, RUBIK_PI), searched())["libraries"]
    assert {
        "libOpenCL.so.1": "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
        "libQnnHtp.so": "/usr/lib/libQnnHtp.so",
        "libQnnHtpV68Skel.so": "/usr/lib/rfsa/adsp/libQnnHtpV68Skel.so",
        "libQnnTFLiteDelegate.so": "/usr/lib/libQnnTFLiteDelegate.so",
        "libtensorflowlite_gpu_delegate.so": "/usr/lib/libtensorflowlite_gpu_delegate.so",
    } == {library["name"]: library["path"] for library in libraries}


def test_a_folder_that_the_loader_is_told_of_comes_first(tmp_path: Path) -> None:
    files = {
        "etc/ld.so.conf.d/vendor.conf": "# the vendor's\n/opt/vendor/lib64\n",
        "opt/vendor/lib64/libOpenCL.so.1": "",
        "usr/lib/libOpenCL.so.1": "",
    }
    (only,) = hardware(make_tree(tmp_path, files), searched())["libraries"]
    assert "/opt/vendor/lib64/libOpenCL.so.1" == only["path"]


def test_thermal_zones_are_told_by_type_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    zones = hardware(make_tree(tmp_path, RUBIK_PI), searched())["zones"]
    kinds = ["cpu0-thermal", "cpu1-thermal", "cpu2-thermal", "nspss0-thermal"]
    assert kinds == [zone["kind"] for zone in zones]
    assert 44600 == zones[-1]["millicelsius"]


def test_power_of_an_ina_is_voltage_times_current(tmp_path: Path) -> None:
    (only,) = hardware(make_tree(tmp_path, JETSON), searched())["sensors"]
    assert ("hwmon ina3221 VDD_IN", 5040 * 1200) == (only["name"], only["microwatts"])


def test_power_of_a_sensor_that_tells_it_is_as_told(tmp_path: Path) -> None:
    chip = "sys/class/hwmon/hwmon0"
    files = {f"{chip}/name": "ina226\n", f"{chip}/power1_input": "3210000\n"}
    (only,) = hardware(make_tree(tmp_path, files), searched())["sensors"]
    assert ("hwmon ina226 power1_input", 3_210_000) == (only["name"], only["microwatts"])
    assert only["may_read"]


def test_power_of_an_older_jetson_is_in_milliwatts(tmp_path: Path) -> None:
    folder = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    files = {f"{folder}/in_power0_input": "2500\n", f"{folder}/rail_name_0": "POM_5V_IN\n"}
    (only,) = hardware(make_tree(tmp_path, files), searched())["sensors"]
    assert ("ina3221x POM_5V_IN", 2_500_000) == (only["name"], only["microwatts"])


def test_tegrastats_is_told_if_no_file_has_power(tmp_path: Path) -> None:
    program = {"usr/bin/tegrastats": ""}
    (only,) = hardware(make_tree(tmp_path / "one", program), searched())["sensors"]
    assert ("tegrastats", "/usr/bin/tegrastats", None) == (
        *(only["name"], only["path"]),
        only["microwatts"],
    )
    (only,) = hardware(make_tree(tmp_path / "two", {**JETSON, **program}), searched())["sensors"]
    assert "hwmon ina3221 VDD_IN" == only["name"]


def test_energy_counters_have_no_power(tmp_path: Path) -> None:
    (only,) = hardware(make_tree(tmp_path, PC), searched())["sensors"]
    assert ("powercap package-0", None) == (only["name"], only["microwatts"])


def test_an_empty_system_is_no_mistake(tmp_path: Path) -> None:
    answer = hardware(tmp_path, searched())
    assert ("", [], 0) == (answer["model"], answer["clusters"], answer["memory_mb"])


def test_files_without_sense_are_passed_over(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal: lots\n",
        "proc/self/status": "Cpus_allowed_list:\t0\n",
        **policy(0, "0", 0, 0),
        f"{CPU}/cpu0/cpu_capacity": "much\n",
        "sys/class/thermal/thermal_zone0/temp": "\xff\n",
    }
    answer = hardware(make_tree(tmp_path, files), searched())
    assert 0 == answer["memory_mb"]
    assert None is answer["clusters"][0]["capacity"]
    assert None is answer["zones"][0]["millicelsius"]


def test_the_rate_of_a_link_is_told_for_real_devices_alone(tmp_path: Path) -> None:
    files = {
        "sys/class/net/eth0/speed": "1000\n",
        "sys/class/net/eth0/device/vendor": "",
        "sys/class/net/veth0/speed": "10000\n",
        "sys/class/net/wlan0/wireless/status": "",
        "sys/class/net/wlan0/device/vendor": "",
        "sys/class/net/wlan0/speed": "-1\n",
        "sys/class/net/down0/speed": "100\n",
        "sys/class/net/lo/speed": "",
    }
    has = {"eth0": "10.0.0.1", "veth0": "10.0.1.1", "wlan0": "10.0.2.1", "lo": "127.0.0.1"}
    answered = interfaces(
        make_tree(tmp_path, files), lambda name: (has[name], 24) if name in has else None
    )
    assert [("eth0", 1000, "wired"), ("veth0", None, "virtual"), ("wlan0", None, "wireless")] == [
        (interface["name"], interface["mbps"], interface["kind"]) for interface in answered
    ]


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    assert ["z2", "z10", "za"] == sorted(["z10", "za", "z2"], key=by_number)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("mpirun (Open MPI) 5.0.11", ("5.0.11", True)),
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...", ("4.1.4", False)),
        ("HYDRA build details: Version: 4.0", None),
    ],
)
def test_an_mpirun_tells_its_version(
    says: str, expected: tuple[str, bool] | None, tmp_path: Path
) -> None:
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "prted").touch()
    answer = open_mpi(str(tmp_path / "mpirun"))
    assert expected == (answer and (answer["version"], answer["has_daemon"]))


def test_a_library_that_lacks_another_is_told_with_the_loaders_words() -> None:
    wanted = {"name": "libnowhere.so", "environment": {}}
    good = {"name": "libc.so.6", "environment": {}}
    (answer,) = answers(sys.executable, {"action": "load", "libraries": [wanted, good]})
    missing, there = answer["complaints"]  # type: ignore[misc]
    assert "libnowhere.so: cannot open shared object file: No such file or directory" == missing
    assert "" == there


def test_who_has_no_token_is_not_served() -> None:
    ours, theirs = "0" * 32, "1" * 32
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(**request: object) -> dict[str, object]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"over_ssh": False, **request}) + "\n")
            process.stdin.flush()
            answer: dict[str, object] = json.loads(process.stdout.readline().split(" ", 1)[1])
            return answer

        port = ask(action="listen", address="127.0.0.1", token=ours)["port"]
        target = [["127.0.0.1", port]]
        assert [""] == ask(action="reach", targets=target, token=ours)["complaints"]
        refused = ask(action="reach", targets=target, token=theirs)["complaints"]
        assert ["another program answers there"] == refused
        measured = ask(action="exchange", address="127.0.0.1", port=port, token=ours, seconds=0.2)
        assert int(str(measured["bits_per_s"])) > 1e8
        assert 0 < int(str(measured["latency_us"])) < 50_000
        process.stdin.close()
