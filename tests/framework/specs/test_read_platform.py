import os
import platform as machine
from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.framework.specs.read_platform import read_platform


def read(folder: Path, text: str, name: str = "platform.yaml") -> Platform:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_platform(path)


def mistakes_of(folder: Path, text: str, name: str = "platform.yaml") -> list[str]:
    with pytest.raises(RankSliceError) as caught:
        read(folder, text, name)
    return str(caught.value).splitlines()


FULL = """
boards:
  edge01:
    host: 1.10
    user: no
    arch: aarch64
    cores: 0-5
    memory_mb: 8192
    engine: litert
    gpu: {engine: litert, delegate: libgpu.so, options: {precision: fp16, cache: true}}
    npu: [{engine: litert}, {engine: other}]
    idle_w: 2.5
    busy_w: 12
  edge_02.lan: {cores: [1, 0]}
  edge-03: {cores: 3, gpu: , user: ~}
  12:
links:
  default: {bandwidth_mbps: 1000, latency_ms: 0.2}
  pairs:
    - {between: [edge01, edge-03], bandwidth_mbps: 100, latency_ms: 0}
"""


def test_a_yaml_file_is_read_in_full(tmp_path: Path) -> None:
    gpu = Accelerator(
        "litert", (("delegate", "libgpu.so"), ("precision", "fp16"), ("cache", "true"))
    )
    npus = (Accelerator("litert"), Accelerator("other"))
    edge01 = Board(
        name="edge01",
        host="1.10",
        user="no",
        arch="aarch64",
        cores=(0, 1, 2, 3, 4, 5),
        memory_mb=8192,
        gpus=(gpu,),
        npus=npus,
        engine="litert",
        idle_w=2.5,
        busy_w=12,
    )
    boards = (
        edge01,
        Board("edge_02.lan", "edge_02.lan", cores=(0, 1)),
        Board("edge-03", "edge-03", cores=(0, 1, 2)),
        Board("12", "12"),
    )
    links = (("edge01", "edge-03", Link(100, 0)),)
    assert Platform("platform.yaml", boards, Link(1000, 0.2), links) == read(tmp_path, FULL)


def test_a_list_with_one_core_is_that_core_and_a_number_is_a_count(tmp_path: Path) -> None:
    boards = read(tmp_path, "boards: {a: {cores: [2]}, b: {cores: 2}, c: {cores: '2'}}").boards
    assert [(2,), (0, 1), (0, 1)] == [board.cores for board in boards]


def test_all_mistakes_of_a_board_are_told_at_once(tmp_path: Path) -> None:
    text = """
boards:
  -oProxy: {}
  edge01:
    coers: 4
    cores: 5-3
    host: a b
    memory_mb: lots
    gpu: litert
    npu: [{delegate: x}, {engine: Lite-RT, options: {a: [1]}, zest: 3}]
  edge02: text
  edge03:
    cores: [0, 0]
    user: -x
    idle_w: -1
    busy_w: .nan
    host: [a]
    gpu: {engine: litert, options: {delegate: y}}
  edge04: {cores: 9999999}
"""
    assert [
        "platform.yaml: boards.-oProxy: '-oProxy' cannot be the name of a board;"
        " use up to 64 letters, digits, '.', '_' and '-', a letter or digit first",
        "platform.yaml: boards.edge01.host: 'a b' cannot be a host name or address;"
        " expected letters, digits and `.:_%-`, such as 192.168.1.11",
        "platform.yaml: boards.edge01.cores: the range '5-3' runs backwards;"
        " expected cores such as 0-5, [0, 1], or 6 for the first six",
        "platform.yaml: boards.edge01.memory_mb: found 'lots';"
        " expected megabytes above 0, such as 8192",
        "platform.yaml: boards.edge01.gpu: found 'litert';"
        " expected an accelerator, `{engine: litert, delegate: libdelegate.so}`, or a list",
        "platform.yaml: boards.edge01.npu[0]: 'engine' is missing;"
        " expected an inference engine, such as onnxruntime or litert",
        "platform.yaml: boards.edge01.npu[1].engine: 'Lite-RT' cannot be the name of an engine;"
        " expected an inference engine, such as onnxruntime or litert",
        "platform.yaml: boards.edge01.npu[1].options.a: found a list;"
        " expected names and values for the engine or its delegate",
        "platform.yaml: boards.edge01.npu[1]: unknown key 'zest';"
        " known keys are engine, delegate, provider, plugin, options, environment and"
        " allow_fallback",
        "platform.yaml: boards.edge01: unknown key 'coers'; did you mean 'cores'?",
        "platform.yaml: boards.edge02: found 'text'; expected a board such as `{cores: 0-5}`",
        "platform.yaml: boards.edge03.host: found a list;"
        " expected letters, digits and `.:_%-`, such as 192.168.1.11",
        "platform.yaml: boards.edge03.user: '-x' cannot be the name of an account;"
        " expected letters, digits and `._-`, such as pi",
        "platform.yaml: boards.edge03.cores: core 0 is repeated;"
        " expected cores such as 0-5, [0, 1], or 6 for the first six",
        "platform.yaml: boards.edge03.gpu.options: the delegate belongs beside the options,"
        " not among them; expected names and values for the engine or its delegate",
        "platform.yaml: boards.edge03.idle_w: found '-1'; expected watts, such as 2.5",
        "platform.yaml: boards.edge03.busy_w: found '.nan'; expected watts, such as 2.5",
        "platform.yaml: boards.edge04.cores: '9999999' is not a list of cores;"
        " expected cores such as 0-5, [0, 1], or 6 for the first six",
    ] == mistakes_of(tmp_path, text)


def test_all_mistakes_of_links_are_told_at_once_and_together_with_those_of_boards(
    tmp_path: Path,
) -> None:
    text = """
boards: {edge01: , edge02: }
links:
  default: {bandwith_mbps: 3, latency_ms: -1}
  pairs:
    - {between: [edge01], bandwidth_mbps: 0, latency_ms: 1}
    - {between: [edge01, edge01], bandwidth_mbps: 1, latency_ms: 1}
    - {between: [edge01, egde02], bandwidth_mbps: 1, latency_ms: 1}
    - {between: [edge01, edge02], bandwidth_mbps: 1, latency_ms: 1}
    - {between: [edge02, edge01], bandwidth_mbps: 1, latency_ms: 1}
pairs: 3
"""
    assert [
        "platform.yaml: links.default: 'bandwidth_mbps' is missing;"
        " expected megabits per second, such as 1000",
        "platform.yaml: links.default.latency_ms: found '-1'; expected milliseconds, such as 0.2",
        "platform.yaml: links.default: unknown key 'bandwith_mbps'; did you mean 'bandwidth_mbps'?",
        "platform.yaml: links.pairs[0].bandwidth_mbps: found '0';"
        " expected megabits per second, such as 1000",
        "platform.yaml: links.pairs[0].between: found a list;"
        " expected two boards, such as [edge01, edge02]",
        "platform.yaml: unknown key 'pairs'; known keys are boards and links",
        "platform.yaml: links.pairs[1].between: 'edge01' appears twice; expected two boards",
        "platform.yaml: links.pairs[2].between: no board 'egde02'; did you mean 'edge02'?",
        "platform.yaml: links.pairs[4].between: 'edge02' and 'edge01' have a link already;"
        " expected every pair once; it holds in both directions",
    ] == mistakes_of(tmp_path, text)


BOARDS = "expected boards by name, such as `edge01: {cores: 0-5}`"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", f"platform.yaml: 'boards' is missing; {BOARDS}"),
        ("boards:", f"platform.yaml: 'boards' is missing; {BOARDS}"),
        ("boards: {}", f"platform.yaml: boards: found an empty object; {BOARDS}"),
        ("boards: [a]", f"platform.yaml: boards: found a list; {BOARDS}"),
        (
            "- a",
            "platform.yaml: the file holds a list;"
            " expected boards by name, such as `boards: {edge01: {cores: 0-5}}`",
        ),
        (
            "boards: {a: [}",
            "platform.yaml: line 1, column 14: invalid YAML: found '}'; expected a value",
        ),
        (
            "boards: {a: &cores {}, b: *cores}",
            "platform.yaml: line 1, column 27: found the alias *cores; write the value itself",
        ),
        (
            "boards:\n  a: {cores: 1,\n      cores: 2}",
            "platform.yaml: boards.a.cores: appears again in line 3; expected every key once",
        ),
        (
            "boards: {[a]: {}}",
            "platform.yaml: boards: the key in line 1 is not a name; expected text",
        ),
        (
            "[" * 100_000,
            "platform.yaml: lists are nested too deeply;"
            " expected boards by name, such as `boards: {edge01: {cores: 0-5}}`",
        ),
    ],
)
def test_what_is_no_platform_at_all_is_told(tmp_path: Path, text: str, mistake: str) -> None:
    assert [mistake] == mistakes_of(tmp_path, text)


def test_a_tag_makes_nothing_but_text(tmp_path: Path) -> None:
    text = "boards: {a: {arch: !!python/object/apply:os.getcwd []}}"
    assert [
        "platform.yaml: boards.a.arch: found an empty list;"
        " expected an architecture such as aarch64 or x86_64"
    ] == mistakes_of(tmp_path, text)


def text_board(folder: Path, line: str) -> Board:
    (board,) = read(folder, line, "platform.txt").boards
    return board


CUDA = (Accelerator("onnxruntime", (("provider", "CUDAExecutionProvider"),)),)
OTHER = (Accelerator("litert"),)
SIX = tuple(range(6))


@pytest.mark.parametrize(
    ("line", "board"),
    [
        ("nx01", Board("nx01", "nx01")),
        ("nx01:192.168.178.45", Board("nx01", "192.168.178.45")),
        ("nx01 slots=4", Board("nx01", "nx01", cores=(0, 1, 2, 3))),
        ("nx01 slots=0,2,4", Board("nx01", "nx01", cores=(0, 2, 4))),
        ("nx01 x86 slots = 0-5", Board("nx01", "nx01", arch="x86", cores=SIX)),
        (
            "edge01 arm slots=0-5 NVIDIAVolta CUDA",
            Board("edge01", "edge01", arch="arm", cores=SIX, gpus=CUDA),
        ),
        (
            "nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)",
            Board("nx01", "nx01", arch="arm", cores=SIX, gpus=CUDA),
        ),
        ("nx01;arm;slots=0-5;NVIDIA", Board("nx01", "nx01", arch="arm", cores=SIX, gpus=CUDA)),
        ("pi gpu", Board("pi", "pi", gpus=OTHER)),
        (
            "pi\tarm\tslots=0-5\tMali VULKAN # GPU",
            Board("pi", "pi", arch="arm", cores=SIX, gpus=OTHER),
        ),
    ],
)
def test_autodices_lines_are_read_in_all_their_forms(
    tmp_path: Path, line: str, board: Board
) -> None:
    assert board == text_board(tmp_path, line)


def test_autodices_file_of_names_is_read(tmp_path: Path) -> None:
    boards = read(tmp_path, "nx01\nnx02\n\n# the last two\nnx03\nnx04\n", "platform.txt").boards
    assert ["nx01", "nx02", "nx03", "nx04"] == [board.name for board in boards]
    assert {None} == {board.cores for board in boards}


LINE = "expected a line such as `edge01 arm slots=0-5 NVIDIAVolta CUDA`"


def test_all_mistakes_of_a_text_file_are_told_at_once(tmp_path: Path) -> None:
    text = "nx01\n-x\nnx02 slots=5-0\nnx03 arm a b c\nnx04 slots=\nnx01:-oProxy\nnx01\n"
    assert [
        f"platform.txt: line 2: '-x' cannot be the name of a board; {LINE}",
        f"platform.txt: line 3: the range '5-0' runs backwards; {LINE}",
        f"platform.txt: line 4: 'a', 'b' and 'c' are too many words for a GPU and its"
        f" library; {LINE}",
        f"platform.txt: line 5: no cores after 'slots='; {LINE}",
        f"platform.txt: line 6: '-oProxy' cannot be a host name or address; {LINE}",
        "platform.txt: board nx01 appears 2 times; expected every board once",
    ] == mistakes_of(tmp_path, text, "platform.txt")


def test_a_text_file_without_boards_is_a_mistake(tmp_path: Path) -> None:
    expected = [f"platform.txt: the file names no boards; {LINE}"]
    assert expected == mistakes_of(tmp_path, "# nothing\n", "platform.txt")


def test_local_is_this_machine() -> None:
    result = read_platform("local")
    (board,) = result.boards
    assert ("local", "local", "localhost") == (result.name, board.name, board.host)
    assert tuple(sorted(os.sched_getaffinity(0))) == board.cores
    assert machine.machine() == board.arch
    assert board.memory_mb is not None
    assert board.memory_mb > 100


def test_a_file_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(RankSliceError) as caught:
        read_platform("no/such.yaml")
    assert "no/such.yaml: no such file; expected a platform file" == str(caught.value)


def test_accelerators_have_providers_environments_and_fallbacks(tmp_path: Path) -> None:
    text = """
boards:
  edge01:
    cpu: {engine: onnxruntime, provider: XNNPACK}
    gpu:
      engine: onnxruntime
      provider: CUDA
      plugin: onnxruntime-ep-cuda
      options: {device_id: 1}
      environment: {CUDA_VISIBLE_DEVICES: "0,1"}
      allow_fallback: true
"""
    gpu = Accelerator(
        "onnxruntime",
        (("provider", "CUDA"), ("plugin", "onnxruntime-ep-cuda"), ("device_id", "1")),
        (("CUDA_VISIBLE_DEVICES", "0,1"),),
        allow_fallback=True,
    )
    board = read(tmp_path, text).boards[0]
    assert (Accelerator("onnxruntime", (("provider", "XNNPACK"),)), gpu) == (
        board.cpu,
        *board.gpus,
    )


def test_what_accelerators_cannot_have_is_told(tmp_path: Path) -> None:
    text = """
boards:
  edge01:
    gpu:
      engine: onnxruntime
      delegate: x.so
      environment: {LD_PRELOAD: x.so, A-B: 1, C: [1]}
      allow_fallback: perhaps
    npu:
      - {engine: litert, provider: CUDA, options: {provider: CUDA}}
      - {engine: onnxruntime, plugin: onnxruntime-qnn}
      - {engine: onnxruntime, provider: QNN, plugin: "--index-url x", options: {plugin: a}}
"""
    place = "platform.yaml: boards.edge01"
    expected = "expected environment variables, such as `{VK_DRIVER_FILES: /path/icd.json}`"
    plugin = "expected the package with the provider, such as onnxruntime-qnn, or its library"
    assert [
        f"{place}.gpu.delegate: the engine onnxruntime takes no delegate, only litert does;"
        " expected the file of a delegate library",
        f"{place}.gpu.environment.LD_PRELOAD: the variable 'LD_PRELOAD' cannot be set here;"
        f" {expected}",
        f"{place}.gpu.environment.A-B: 'A-B' cannot be the name of a variable; {expected}",
        f"{place}.gpu.environment.C: found a list; {expected}",
        f"{place}.gpu.allow_fallback: found 'perhaps';"
        " expected true or false: may other layers run on the CPU",
        f"{place}.npu[0].provider: the engine litert takes no provider, only onnxruntime does;"
        " expected an execution provider, such as CUDA or OpenVINO",
        f"{place}.npu[0].options: the provider belongs beside the options, not among them;"
        " expected names and values for the engine or its delegate",
        f"{place}.npu[1].plugin: it also needs a provider; {plugin}",
        f"{place}.npu[2].plugin: '--index-url x' cannot be a package or the file of a library;"
        f" {plugin}",
        f"{place}.npu[2].options: the plugin belongs beside the options, not among them;"
        " expected names and values for the engine or its delegate",
    ] == mistakes_of(tmp_path, text)
