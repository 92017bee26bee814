import json
from dataclasses import replace

import pytest
from hypothesis import given
from placements import placements
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned, plans, routed

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.plan.tables import (
    hostfile,
    rankfile,
    receiver_table,
    sender_table,
    table_to_json,
)

FIRST, SECOND, THIRD = placements("edge01_cpu1-3", "edge01_gpu", "edge04_cpu4,5,8")
PLACES = (replace(FIRST, cores=(1, 2, 3)), SECOND, replace(THIRD, cores=(4, 5, 8)))


def test_the_tables_of_autodices_figure_come_out_as_in_the_paper():
    plan = planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)
    assert {
        "edge01_arm123": {"Buff1": [1, 2], "Buff4": [2]},
        "edge01_gpu": {"Buff2": [0]},
        "edge04_arm45": {"Buff3": [0]},
    } == sender_table(plan)
    assert {
        "edge01_arm123": {"Buff2": [1], "Buff3": [2]},
        "edge01_gpu": {"Buff1": [0]},
        "edge04_arm45": {"Buff1": [0], "Buff4": [0]},
    } == receiver_table(plan)


@given(plans())
def test_what_one_table_says_is_sent_the_other_says_is_received(plan):
    keys = [rank.key for rank in plan.ranks]
    sent = {
        (tensor, keys.index(key), rank)
        for key, tensors in sender_table(plan).items()
        for tensor, ranks in tensors.items()
        for rank in ranks
    }
    received = {
        (tensor, rank, keys.index(key))
        for key, tensors in receiver_table(plan).items()
        for tensor, ranks in tensors.items()
        for rank in ranks
    }
    assert sent == received == {(c.tensor, c.source, c.destination) for c in plan.channels}


def test_the_tables_of_two_routes_have_what_is_sent_on_either_once():
    plan = routed(FIGURE_2, FIGURE_2_RANKS, {**FIGURE_2_RANKS, "Relu1": 1})
    assert {
        "board_cpu0": {"Buff1": [1, 2], "Buff4": [2, 1]},
        "board_cpu1": {"Buff2": [0], "output": [2]},
        "board_cpu2": {"Buff3": [0]},
    } == sender_table(plan)
    assert {
        "board_cpu0": {"Buff2": [1], "Buff3": [2]},
        "board_cpu1": {"Buff1": [0], "Buff4": [0]},
        "board_cpu2": {"Buff1": [0], "Buff4": [0], "output": [1]},
    } == receiver_table(plan)


@given(plans())
def test_every_key_is_in_both_tables_in_the_order_of_ranks(plan):
    keys = [rank.key for rank in plan.ranks]
    assert keys == [*sender_table(plan)] == [*receiver_table(plan)]


def test_the_text_of_a_table_is_ascii_json_with_a_line_per_key():
    table = {"é": {"Buff1": [1, 2]}, "b": {}}
    text = table_to_json(table)
    assert '{\n "\\u00e9": {"Buff1": [1, 2]},\n "b": {}\n}\n' == text
    assert table == json.loads(text)


def test_a_rankfile_has_a_line_per_rank_with_its_host_and_cores():
    assert ("rank 0=edge01 slot=1-3\nrank 1=edge01 slot=1\nrank 2=edge04 slot=4-5,8\n") == rankfile(
        PLACES
    )


def test_a_hostfile_has_a_slot_for_each_core_in_use():
    assert "edge01 slots=3\nedge04 slots=3\n" == hostfile(PLACES)


def test_a_hostfile_has_a_slot_for_each_rank_even_if_they_share_a_core():
    assert "edge01 slots=2\n" == hostfile([replace(FIRST, cores=(0,)), replace(SECOND, cores=(0,))])


@pytest.mark.parametrize("host", ["edge01", "10.77.0.11", "board-1.local", "fe80::1", "rubik_pi"])
def test_names_and_addresses_are_hosts(host):
    assert f"rank 0={host} slot=1-3\n" == rankfile([replace(PLACES[0], host=host)])


@pytest.mark.parametrize("host", ["", "a b", "a\nrank 9=b", "+n0", "-x", "a slots=9", "h=1", "é"])
@pytest.mark.parametrize("write", [hostfile, rankfile])
def test_hosts_that_would_change_the_meaning_of_a_line_are_refused(write, host):
    with pytest.raises(RankSliceError, match="rank 0, key 'edge01_cpu1-3'"):
        write([replace(FIRST, host=host)])


def test_a_rank_without_cores_is_refused():
    with pytest.raises(RankSliceError, match="it has no core"):
        rankfile([replace(FIRST, cores=())])
