"""Platform files out of what boards report: what is found stands there, what is not is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from command_line import rankslice
from hypothesis import HealthCheck, example, given, settings
from needed import NEEDS_SSH
from probed_boards import JETSON, PC, RASPBERRY_PI, RUBIK_PI, environment, report_of

from rankslice.backend.boards.probed import (
    BoardReport,
    Environment,
    Interface,
    Probed,
    ProbedBoard,
    Route,
)
from rankslice.backend.boards.usable_accelerators import accelerators_of
from rankslice.framework.platform import Accelerator, Link, Platform
from rankslice.framework.specs.platform_yaml import parse_platform_yaml
from rankslice.session.probing.platform_file import platform_text

LITERT = environment(ai_edge_litert="2.3.0", numpy="2.4.6", mpi4py="4.1.2")
WITH_CUDA = Environment(
    "/usr/bin/python3",
    "3.10.12",
    (("onnxruntime-gpu", "1.20.0"),),
    ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"),
    "Open MPI v5.0.11",
)


@pytest.fixture
def rubik_pi(tmp_path: Path) -> BoardReport:
    """A board whose GPU and NPU have all that they need."""
    return report_of(tmp_path, RUBIK_PI, LITERT)


def probed(*boards: ProbedBoard, routes: tuple[Route, ...] = ()) -> Probed:
    return Probed(boards, routes)


def board(name: str, report: BoardReport, user: str = "") -> ProbedBoard:
    return ProbedBoard(name, f"{name}.local", user, "192.168.1.11", report)


def read(text: str) -> Platform:
    return parse_platform_yaml(text, "boards.yaml")


def routes(*measured: tuple[str, str, float, int]) -> tuple[Route, ...]:
    """Return routes from source, target, Mbit/s and microseconds."""
    return tuple(Route(a, b, "", latency, round(rate * 1e6)) for a, b, rate, latency in measured)


def both(first: str, second: str, rate: float, latency: int) -> tuple[Route, ...]:
    return routes((first, second, rate, latency), (second, first, rate, latency))


def test_a_board_is_read_back_as_it_was_found(rubik_pi: BoardReport) -> None:
    (edge01,) = read(platform_text(probed(board("edge01", rubik_pi, "ubuntu")))).boards
    assert ("edge01", "edge01.local", "ubuntu") == (edge01.name, edge01.host, edge01.user)
    assert ("aarch64", "3.12", tuple(range(8))) == (edge01.arch, edge01.python, edge01.cores)
    assert ["little", "big", "prime"] == [cluster.name for cluster in edge01.clusters]
    assert 7550 == edge01.memory_mb
    gpu = Accelerator("litert", (("delegate", "/usr/lib/libtensorflowlite_gpu_delegate.so"),))
    npu = Accelerator(
        "litert",
        (("delegate", "/usr/lib/libQnnTFLiteDelegate.so"), ("backend_type", "htp")),
        (("ADSP_LIBRARY_PATH", "/usr/lib/rfsa/adsp"),),
    )
    assert ((gpu,), (npu,)) == (edge01.gpus, edge01.npus)


def test_values_say_where_they_come_from(rubik_pi: BoardReport) -> None:
    interface = Interface("eth0", "192.168.1.11", 24, 1000, "wired")
    text = platform_text(probed(board("edge01", replace(rubik_pi, interfaces=(interface,)))))
    for expected in (
        "host: edge01.local  # 192.168.1.11, eth0, wired, 1000 Mbit/s (/sys/class/net/eth0/speed)",
        "# model: Thundercomm, Inc. RUBIK Pi 3 (/proc/device-tree/model)",
        "clusters:  # a rank is as fast as the slowest of its cores",
        "little: {cores: 0-3, kind: Cortex-A55, max_mhz: 1958}  # Cortex-A55, 300 to 1958 MHz"
        " (/sys/devices/system/cpu/cpufreq/policy0), capacity 343 of 1024 (cpu_capacity)",
        "prime: {cores: [7], kind: Cortex-A78, max_mhz: 2707}  # Cortex-A78, 806 to 2707 MHz",
        "# gpu: found /dev/kgsl-3d0, /usr/lib/libtensorflowlite_gpu_delegate.so,",
        "# thermal zones: cpu0-thermal 47 C, cpu1-thermal 47 C, cpu2-thermal 47 C"
        " and nspss0-thermal 45 C (/sys/class/thermal)",
        "# no power sensor: idle_w and busy_w are left out",
    ):
        assert expected in text


def test_a_gpu_without_an_engine_is_a_comment_that_says_what_is_missing(tmp_path: Path) -> None:
    report = report_of(tmp_path, RUBIK_PI, environment(onnxruntime="1.31.0"))
    text = platform_text(probed(board("edge01", report)))
    assert ((), ()) == (read(text).boards[0].gpus, read(text).boards[0].npus)
    assert "# npu: /dev/fastrpc-adsp, /usr/lib/libQnnTFLiteDelegate.so and" in text
    assert "is missing: ai-edge-litert, tflite-runtime or tensorflow in /usr/bin/python3" in text


def test_an_npu_without_its_delegate_is_a_comment(tmp_path: Path) -> None:
    files = {name: text for name, text in RUBIK_PI.items() if "QnnTFLite" not in name}
    accelerators = accelerators_of(report_of(tmp_path, files, LITERT))
    assert ["gpu"] == [accelerator.unit for accelerator in accelerators.usable]
    (qualcomms, other) = accelerators.remarks
    assert qualcomms.endswith(
        "for Qualcomm's delegate for LiteRT is missing: libQnnTFLiteDelegate.so"
    )
    assert other.endswith(
        "is missing: onnxruntime-qnn, or an onnxruntime with QNN in /usr/bin/python3"
    )


def test_a_device_that_the_account_may_not_open_is_not_used(rubik_pi: BoardReport) -> None:
    locked = tuple(replace(device, may_open=False) for device in rubik_pi.devices)
    accelerators = accelerators_of(replace(rubik_pi, devices=locked))
    assert () == accelerators.usable
    assert (
        "the right to open /dev/kgsl-3d0 (add the account to its group)" in accelerators.remarks[0]
    )


def test_a_raspberrys_gpu_runs_compiled_models_and_its_coral_lacks_a_library(
    tmp_path: Path,
) -> None:
    accelerators = accelerators_of(report_of(tmp_path, RASPBERRY_PI, LITERT))
    assert [("gpu", (("engine", "litert"),))] == [
        (accelerator.unit, accelerator.spec) for accelerator in accelerators.usable
    ]
    assert [
        "npu: USB 18d1:9302 (Coral Edge TPU) is there; for Coral's delegate for LiteRT is missing:"
        " libedgetpu.so"
    ] == list(accelerators.remarks)


def test_cuda_is_found_by_what_onnxruntime_offers(tmp_path: Path) -> None:
    (usable,) = accelerators_of(report_of(tmp_path, JETSON, WITH_CUDA)).usable
    assert (("engine", "onnxruntime"), ("provider", "CUDA")) == usable.spec


def test_plugins_of_onnxruntime_are_found_by_their_packages(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.31.1", "onnxruntime-qnn": "2.7.0"}
    files = {name: text for name, text in RUBIK_PI.items() if "libQnn" not in name}
    (usable,) = accelerators_of(report_of(tmp_path, files, environment(**packages))).usable
    assert ("npu", (("engine", "onnxruntime"), ("provider", "QNN"))) == (usable.unit, usable.spec)
    assert (("backend_type", "htp"),) == usable.options


def test_webgpu_needs_its_plugin_and_a_driver_of_vulkan(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.31.1", "onnxruntime-ep-webgpu": "0.4.0"}
    with_driver = accelerators_of(report_of(tmp_path / "1", RASPBERRY_PI, environment(**packages)))
    assert [("gpu", (("engine", "onnxruntime"), ("provider", "WebGPU")))] == [
        (accelerator.unit, accelerator.spec) for accelerator in with_driver.usable
    ]
    packages.pop("onnxruntime-ep-webgpu")
    without = accelerators_of(report_of(tmp_path / "2", RASPBERRY_PI, environment(**packages)))
    assert () == without.usable
    assert any(
        "for onnxruntime with WebGPU is missing: onnxruntime-ep-webgpu, or an" in remark
        for remark in without.remarks
    )


def test_a_driver_in_software_is_no_gpu(tmp_path: Path) -> None:
    accelerators = accelerators_of(report_of(tmp_path, PC, LITERT))
    assert () == accelerators.usable
    assert any("a driver of Vulkan or OpenCL for it" in remark for remark in accelerators.remarks)


def test_power_sensors_are_told(tmp_path: Path) -> None:
    text = platform_text(probed(board("pc", report_of(tmp_path / "pc", PC, LITERT))))
    assert "# power: powercap package-0 (/sys/class/powercap/intel-rapl:0/energy_uj)" in text
    text = platform_text(probed(board("nano", report_of(tmp_path / "nano", JETSON, LITERT))))
    sensor = "hwmon ina3221 VDD_IN (/sys/class/hwmon/hwmon1/curr1_input), 6.05 W when asked"
    assert f"# power: {sensor}" in text


def test_one_core_is_not_taken_for_a_number_of_cores(rubik_pi: BoardReport) -> None:
    for cores in ((3,), (0, 1, 2, 5), (0,)):
        text = platform_text(probed(board("edge01", replace(rubik_pi, cores=cores))))
        assert cores == read(text).boards[0].cores


def test_names_that_yaml_would_misread_are_quoted(rubik_pi: BoardReport) -> None:
    odd = ProbedBoard("no", "fe80::1%eth0", "", "fe80::1%eth0", rubik_pi)
    (edge01,) = read(platform_text(probed(odd))).boards
    assert ("no", "fe80::1%eth0") == (edge01.name, edge01.host)


def test_what_a_board_says_cannot_leave_its_comment(rubik_pi: BoardReport) -> None:
    evil = replace(rubik_pi, model="X\n    user: root\u2028  cores: 1", hostname="a\nb")
    (edge01,) = read(platform_text(probed(board("edge01", evil)))).boards
    assert "" == edge01.user
    assert tuple(range(8)) == edge01.cores


@given(text=st.text())
@example(text='3.12"\n  evil:\n    host: "evil')
@example(text="y")
@example(text="1_0")
@example(text="# no")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_boards_say_there_is_one_board(rubik_pi: BoardReport, text: str) -> None:
    said = replace(LITERT, version=text, python=text, packages=(("ai-edge-litert", text),))
    evil = replace(
        rubik_pi,
        model=text,
        arch=text,
        environments=(said,),
        libraries=tuple(replace(library, path=text) for library in rubik_pi.libraries),
    )
    written = platform_text(probed(board("edge01", evil)))
    assert ["edge01"] == list(yaml.safe_load(written)["boards"])
    assert text == yaml.safe_load(written)["boards"]["edge01"]["arch"]


def test_the_link_of_two_boards_is_its_slower_direction(rubik_pi: BoardReport) -> None:
    there_and_back = routes(("a", "b", 941.2, 110), ("b", "a", 412.7, 130))
    platform = read(
        platform_text(probed(board("a", rubik_pi), board("b", rubik_pi), routes=there_and_back))
    )
    assert Link(413, 0.13) == platform.default_link
    assert () == platform.links


def test_pairs_that_differ_stand_beside_the_default(rubik_pi: BoardReport) -> None:
    boards = [board(name, rubik_pi) for name in "abc"]
    measured = (
        *both("a", "b", 941, 100),
        *both("a", "c", 939, 120),
        *both("b", "c", 94.1, 2300),
    )
    platform = read(platform_text(probed(*boards, routes=measured)))
    assert Link(939, 0.12) == platform.default_link
    assert (("b", "c", Link(94.1, 2.3)),) == platform.links


def test_a_pair_that_is_not_connected_has_no_link(rubik_pi: BoardReport) -> None:
    boards = [board(name, rubik_pi) for name in "ab"]
    blocked = (Route("a", "b", "timed out"), *routes(("b", "a", 941, 100)))
    text = platform_text(probed(*boards, routes=blocked))
    assert None is read(text).default_link
    assert "# no link: a cannot connect to b: timed out; is there a firewall?" in text


def test_the_same_findings_give_the_same_text(rubik_pi: BoardReport) -> None:
    twice = probed(board("a", rubik_pi), board("b", rubik_pi), routes=both("a", "b", 941, 100))
    assert platform_text(twice) == platform_text(replace(twice))


def test_an_old_python_is_told(tmp_path: Path) -> None:
    old = replace(LITERT, version="3.8.10")
    text = platform_text(probed(board("edge01", report_of(tmp_path, RASPBERRY_PI, old))))
    assert 'python: "3.8"  # /usr/bin/python3, 3.8.10; too old, jobs need 3.10 or later' in text


def test_the_environment_of_deploy_is_the_one_that_counts(rubik_pi: BoardReport) -> None:
    own = replace(LITERT, python="/root/.rankslice/venv/bin/python3", version="3.12.4")
    both_told = replace(rubik_pi, environments=(replace(LITERT, packages=()), own))
    text = platform_text(probed(board("edge01", both_told)))
    assert 'python: "3.12"  # /root/.rankslice/venv/bin/python3, 3.12.4' in text
    assert "# /usr/bin/python3 has nothing that jobs need" in text
    assert read(text).boards[0].gpus


@NEEDS_SSH
def test_hosts_that_are_not_there_are_told_without_an_empty_table(tmp_path: Path) -> None:
    ended = rankslice("probe", "nosuch.invalid", "--out", tmp_path / "boards.yaml")
    assert (1, "") == (ended.code, ended.out)
    assert "nosuch.invalid" in ended.err
