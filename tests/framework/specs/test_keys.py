import pytest

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.errors import RankSliceError
from rankslice.framework.specs.keys import Key, parse_key, read_cores, split_keys, split_turns


@pytest.mark.parametrize(
    "key",
    [
        Key("edge01_cpu0-3", "edge01", "cpu", "0-3"),
        Key("edge01_arm123", "edge01", "cpu", "123"),
        Key("pc_x860,1", "pc", "cpu", "0,1"),
        Key("edge01_gpu", "edge01", "gpu", ""),
        Key("edge01_gpu1", "edge01", "gpu", "1"),
        Key("edge01_gpu@4", "edge01", "gpu", "", host_core=4),
        Key("edge01_npu0@12.3", "edge01", "npu", "0", host_core=12, sharer=3),
        Key("edge01_cpu0-3.2", "edge01", "cpu", "0-3", sharer=2),
        Key("my_board-2.lan_gpu", "my_board-2.lan", "gpu", ""),
        Key("a_gpu_cpu1", "a_gpu", "cpu", "1"),
    ],
    ids=lambda key: key.text,
)
def test_a_key_is_a_board_and_a_resource(key: Key) -> None:
    assert key == parse_key(key.text, "m")


SIX = tuple(range(6))
SIXTEEN = tuple(range(16))


@pytest.mark.parametrize(
    ("text", "available", "cores"),
    [
        ("0-3", SIX, (0, 1, 2, 3)),
        ("0,1,10", SIXTEEN, (0, 1, 10)),
        ("0-1,4-5", SIX, (0, 1, 4, 5)),
        ("12-12", SIXTEEN, (12,)),
        ("3", SIX, (3,)),
        ("0123", SIXTEEN, (0, 1, 2, 3)),
        ("12", SIX, (1, 2)),
        ("12", (10, 11, 12, 13), (12,)),
        ("16", SIXTEEN, (1, 6)),
        ("11", SIXTEEN, (11,)),
        ("12", None, (1, 2)),
        ("0123", None, (0, 1, 2, 3)),
        ("11", None, (11,)),
        ("100", None, (100,)),
        ("1,0,0", None, (0, 0, 1)),
    ],
)
def test_cores_are_read_in_the_way_that_fits_the_board(
    text: str, available: tuple[int, ...] | None, cores: tuple[int, ...]
) -> None:
    assert cores == read_cores(text, available, "m")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("1,", "'1,' is not a list of cores; expected cores such as 0-3 or 0,2"),
        ("٣", "'٣' is not a list of cores; expected cores such as 0-3 or 0,2"),
    ],
)
def test_cores_that_cannot_be_read_are_told(text: str, mistake: str) -> None:
    with pytest.raises(RankSliceError) as caught:
        read_cores(text, SIXTEEN, "m")
    assert f"m: {mistake}" == str(caught.value)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("edge01_gpu", ("edge01_gpu",)),
        ("edge01_cpu0-3,edge01_gpu", ("edge01_cpu0-3", "edge01_gpu")),
        ("edge01_cpu0-3; edge01_gpu;", ("edge01_cpu0-3", "edge01_gpu")),
        (
            "edge01_cpu0,2-3,5,pi-4_b_npu1@4.2,x_arm45",
            ("edge01_cpu0,2-3,5", "pi-4_b_npu1@4.2", "x_arm45"),
        ),
        ("a_gpu,a_gpu;b_gpu", ("a_gpu", "a_gpu", "b_gpu")),
        ("nonsense;a_gpu", ("nonsense", "a_gpu")),
    ],
)
def test_a_list_of_keys_is_split_at_commas_that_are_not_between_cores(
    text: str, keys: tuple[str, ...]
) -> None:
    assert keys == split_keys(text, "--accelerators")


def test_lists_of_single_accelerators_refuse_keys_of_ranks_that_take_turns() -> None:
    with pytest.raises(RankSliceError) as caught:
        split_keys("a_gpu*2|a_cpu0,b_gpu;b_cpu0,2*3", "--accelerators")
    expected = (
        "it is the key of ranks that take turns;"
        " expected one accelerator per key, separated by ';' or ',', without weights"
    )
    assert [
        f"--accelerators: a_gpu*2|a_cpu0: {expected}",
        f"--accelerators: b_cpu0,2*3: {expected}",
    ] == str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_gpu", {"a_gpu": ALL}),
        ("a_gpu*7", {"a_gpu": ALL}),
        ("a_gpu|b_cpu0,2", {"a_gpu": Turns(2, (0,)), "b_cpu0,2": Turns(2, (1,))}),
        ("a_gpu*2|b_gpu", {"a_gpu": Turns(3, (0, 2)), "b_gpu": Turns(3, (1,))}),
        ("a_gpu*2000|b_gpu*1000", {"a_gpu": Turns(3, (0, 2)), "b_gpu": Turns(3, (1,))}),
        ("a_npu0@4.2*1|b_gpu.3*1", {"a_npu0@4.2": Turns(2, (0,)), "b_gpu.3": Turns(2, (1,))}),
        ("a||b", {"a": Turns(3, (0,)), "": Turns(3, (1,)), "b": Turns(3, (2,))}),
        ("", {"": ALL}),
    ],
)
def test_an_entrys_key_names_ranks_and_their_turns(text: str, expected: dict[str, Turns]) -> None:
    assert tuple(expected.items()) == split_turns(text, "m")


@pytest.mark.parametrize("weight", ["", "0", "x", "-1", "1.5", "03", "1000000", "²", " 2", "1*2"])
def test_a_weight_is_a_number_from_1(weight: str) -> None:
    with pytest.raises(RankSliceError) as caught:
        split_turns(f"a_gpu|b_gpu*{weight}", "m")
    expected = f"m: '{weight}' after '*' is not a weight"
    assert f"{expected}; expected a number from 1, as in edge01_gpu*3" == str(caught.value)


def test_all_weights_of_a_key_that_are_none_are_told_at_once() -> None:
    with pytest.raises(RankSliceError) as caught:
        split_turns("a_gpu*0|*x|b_gpu*", "m")
    assert ["'0'", "'x'", "''"] == [line.split()[1] for line in str(caught.value).splitlines()]


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("a_gpu*100|b_gpu", 101),
        ("a_gpu*150|b_gpu*52", 101),
        ("a_gpu*999999|b_gpu*999998", 1999997),
        ("|".join(f"a_cpu{core}" for core in range(101)), 101),
    ],
)
def test_weights_that_make_a_long_period_are_refused_at_once(text: str, period: int) -> None:
    with pytest.raises(RankSliceError) as caught:
        split_turns(text, "m")
    assert (
        f"m: the weights, divided by their common factor, add up to {period};"
        " expected at most 100: round them"
    ) == str(caught.value)


def test_a_period_of_100_is_allowed() -> None:
    assert {100} == {turns.period for _, turns in split_turns("a_gpu*198|b_gpu*2", "m")}
