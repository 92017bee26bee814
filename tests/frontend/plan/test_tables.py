import json

from hypothesis import given
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned, plans, routed

from rankslice.frontend.plan.tables import receiver_table, sender_table, table_to_json


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
