import pytest

from rankslice.backend.runtime.job import ALL, Rank, Turns
from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import Mapping, MappingEntry, Placements
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.specs.placement import place_ranks

GPU = Accelerator("litert", (("delegate", "libgpu.so"),))
NPU0, NPU1 = Accelerator("litert", (("n", "0"),)), Accelerator("litert", (("n", "1"),))
PLATFORM = Platform(
    "platform.yaml",
    (
        Board("edge01", "10.0.0.1", cores=tuple(range(6)), gpus=(GPU,), npus=(NPU0, NPU1)),
        Board("edge_02", "edge_02", cores=(0, 1), engine="litert", gpus=(GPU,)),
        Board("unknown", "unknown", gpus=(GPU,)),
    ),
)


def mapping_of(*keys: str) -> Mapping:
    return Mapping("mapping.json", tuple(MappingEntry(key, ("layer",)) for key in keys))


def placed(*keys: str, share_cores: bool = False) -> Placements:
    return place_ranks(mapping_of(*keys), PLATFORM, share_cores=share_cores)


def cores_of(*keys: str, share_cores: bool = False) -> list[tuple[int, ...]]:
    return [rank.cores for rank in placed(*keys, share_cores=share_cores).ranks]


def mistakes_of(*keys: str, share_cores: bool = False) -> list[str]:
    with pytest.raises(RankSliceError) as caught:
        placed(*keys, share_cores=share_cores)
    return str(caught.value).splitlines()


def test_a_cpu_rank_gets_its_cores_and_the_boards_engine() -> None:
    expected = Rank(0, "edge_02_cpu01", "edge_02", "edge_02", "cpu", (0, 1), "litert")
    assert Placements((expected,), entries=(0,)) == placed("edge_02_cpu01")


def test_a_gpu_rank_gets_its_host_core_and_the_gpus_engine_and_options() -> None:
    options = (("delegate", "libgpu.so"),)
    expected = Rank(0, "edge01_gpu@4", "edge01", "10.0.0.1", "gpu", (4,), "litert", options)
    assert Placements((expected,), entries=(0,)) == placed("edge01_gpu@4")


def test_an_accelerator_has_a_number_where_the_board_has_several() -> None:
    ranks = placed("edge01_gpu0", "edge01_npu", "edge01_npu1").ranks
    assert ["gpu", "npu0", "npu1"] == [rank.accelerator for rank in ranks]
    assert [GPU.options, NPU0.options, NPU1.options] == [rank.options for rank in ranks]


def test_a_gpu_without_a_host_core_gets_the_lowest_core_that_no_key_names() -> None:
    keys = ("edge01_gpu", "edge01_npu0", "edge01_cpu0,2", "edge01_npu1@1")
    assert [(3,), (4,), (0, 2), (1,)] == cores_of(*keys)


def test_on_a_board_with_unknown_cores_too() -> None:
    assert [(1,), (0, 2)] == cores_of("unknown_gpu", "unknown_cpu02")


def test_a_gpu_shares_a_core_with_a_warning_if_none_is_left() -> None:
    result = placed("edge_02_cpu0-1", "edge_02_gpu")
    assert [(0, 1), (0,)] == [rank.cores for rank in result.ranks]
    assert [True, True] == [rank.shared for rank in result.ranks]
    assert (
        "mapping.json: edge_02_gpu: no core of board edge_02 is free to drive the GPU;"
        " it shares core 0 with another rank; leave a core free to avoid that",
    ) == result.warnings


def test_ranks_may_share_cores_and_accelerators_if_asked_to() -> None:
    keys = ("edge01_cpu0-1", "edge01_cpu0-1.2", "edge01_cpu2", "edge01_gpu@3", "edge01_gpu@3.2")
    result = placed(*keys, share_cores=True)
    assert [True, True, False, True, True] == [rank.shared for rank in result.ranks]
    assert () == result.warnings


def test_a_core_named_twice_counts_once_if_cores_are_shared() -> None:
    result = placed("edge01_cpu0,0", share_cores=True)
    assert [((0,), False)] == [(rank.cores, rank.shared) for rank in result.ranks]


SHARE = "give each rank its own, or allow sharing with --share-cores"


def test_mistakes_of_all_kinds_are_told_at_once() -> None:
    keys = ("edge01", "pc_gpu", "edge01_cpu7", "edge01_cpu0", "edge01_cpu0-1")
    assert 4 == len(mistakes_of(*keys))


def test_cpu_ranks_take_the_cpu_block_or_the_default_engine() -> None:
    cpu = Accelerator("onnxruntime", (("provider", "XNNPACK"),), (("A", "1"),), True)
    boards = (Board("a", "a", cores=(0,), cpu=cpu), Board("b", "b", cores=(0,)))
    mapping = mapping_of("a_cpu0", "b_cpu0")
    ranks = place_ranks(mapping, Platform("p.yaml", boards), default_engine="litert").ranks
    assert [(cpu.options, cpu.environment, True), ((), (), False)] == [
        (rank.options, rank.environment, rank.allow_fallback) for rank in ranks
    ]
    assert ["onnxruntime", "litert"] == [rank.engine for rank in ranks]


def turns_of(*keys: str, share_cores: bool = False) -> dict[str, Turns]:
    return {rank.key: rank.turns for rank in placed(*keys, share_cores=share_cores).ranks}


def test_an_entry_of_several_keys_has_a_rank_for_each() -> None:
    result = placed("edge_02_cpu0", "edge01_gpu*2|edge01_cpu0-3", "edge01_cpu5")
    keys = ["edge_02_cpu0", "edge01_gpu", "edge01_cpu0-3", "edge01_cpu5"]
    assert (keys, [0, 1, 2, 3]) == ([r.key for r in result.ranks], [r.rank for r in result.ranks])
    assert (0, 1, 1, 2) == result.entries
    assert [(0,), (1, 2), (3,)] == [result.ranks_of(entry) for entry in range(3)]


def test_ranks_of_an_entry_take_turns_and_others_handle_all_frames() -> None:
    by_key = turns_of("edge_02_cpu0*3", "edge01_gpu*2|edge01_cpu0-3")
    turns = {"edge01_gpu": Turns(3, (0, 2)), "edge01_cpu0-3": Turns(3, (1,))}
    assert {"edge_02_cpu0": ALL, **turns} == by_key


def test_ranks_that_take_turns_share_no_core_unless_asked_to() -> None:
    keys = ("edge01_cpu0-1|edge01_cpu1-2", "edge01_cpu4|edge01_cpu4.2")
    assert [
        f"mapping.json: edge01_cpu1-2: core 1 is in edge01_cpu0-1 too; {SHARE}",
        "mapping.json: edge01_cpu4.2: the suffix .2 shares a resource between ranks;"
        " allow that with --share-cores",
    ] == mistakes_of(*keys)
    assert {Turns(2, (0,)), Turns(2, (1,))} == {*turns_of(*keys, share_cores=True).values()}


@pytest.mark.parametrize("share_cores", [False, True])
def test_a_key_that_is_there_twice_is_told_within_an_entry_and_across_entries(
    share_cores: bool,
) -> None:
    hint = "give each rank its own key: edge01_cpu0.2 shares what edge01_cpu0 names"
    expected = f"mapping.json: edge01_cpu0: appears 2 times; {hint}"
    within = mistakes_of("edge01_cpu0*2|edge01_cpu0", share_cores=share_cores)
    across = mistakes_of("edge01_cpu0|edge01_cpu1", "edge01_cpu0*3", share_cores=share_cores)
    assert [[expected], [expected]] == [within, across]


def test_a_gpu_that_takes_turns_gets_a_core_that_no_key_of_any_entry_names() -> None:
    assert [(2,), (0,), (1,)] == cores_of("edge01_gpu|edge01_cpu0", "edge01_cpu1")


def test_all_mistakes_of_an_entrys_keys_are_told_at_once() -> None:
    mistakes = mistakes_of(
        "edge01_tpu|edge01_cpu0||edge01_gpux", "edge01_cpu1*0", "pc_gpu|edge1_gpu"
    )
    where = "mapping.json: edge01_tpu|edge01_cpu0||edge01_gpux: "
    assert [
        where + "unknown resource 'tpu'",
        where + "the key is not of the form board_resource",
        where + "'x' after gpu is not a number",
        "mapping.json: edge01_cpu1*0: '0' after '*' is not a weight",
        "mapping.json: pc_gpu: no board 'pc' in platform.yaml",
        "mapping.json: edge1_gpu: no board 'edge1' in platform.yaml",
    ] == [mistake.partition(";")[0] for mistake in mistakes]
