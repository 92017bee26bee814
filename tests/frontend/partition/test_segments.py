import random
import time
from collections import deque
from itertools import product

import pytest
from hypothesis import given, strategies as st

from rankslice.frontend.partition.segments import BUDGET, fewest_blocks


@st.composite
def problems(draw, most=8):
    ranks = draw(st.lists(st.integers(0, 3), min_size=1, max_size=most))
    direct = [
        draw(st.lists(st.integers(0, item - 1), max_size=3)) if item else []
        for item in range(len(ranks))
    ]
    return ranks, direct


def is_acyclic(group, direct):
    """Tell whether the groups of the items depend on each other without a circle."""
    edges = {(group[p], group[i]) for i, before in enumerate(direct) for p in before}
    left = set(group)
    while left:
        free = {g for g in left if not any((o, g) in edges for o in left - {g})}
        if not free:
            return False
        left -= free
    return True


def groupings(ranks, group=()):
    """Yield all ways to group the items, each group of one rank, as a group number per item."""
    if len(group) == len(ranks):
        yield group
        return
    rank = ranks[len(group)]
    ranked = dict(zip(group, ranks, strict=False))
    joined = [number for number, owner in ranked.items() if owner == rank]
    for number in (*joined, len(ranked)):
        yield from groupings(ranks, (*group, number))


def fewest_groups(ranks, direct):
    return min(len(set(group)) for group in groupings(ranks) if is_acyclic(group, direct))


def fewest_turns(ranks, direct):
    """Return how few turns of one rank each execute the items one by one, by trying all orders."""
    needs = [sum(1 << before for before in set(befores)) for befores in direct]
    best = {(0, None): 0}
    todo = deque(best)
    while True:
        done, rank = state = todo.popleft()
        if done == (1 << len(ranks)) - 1:
            return best[state]
        for item, needed in enumerate(needs):
            if not done >> item & 1 and not needed & ~done:
                other = ranks[item] != rank
                reached = (done | 1 << item, ranks[item])
                if best[state] + other < best.get(reached, len(ranks) + 1):
                    best[reached] = best[state] + other
                    (todo.append if other else todo.appendleft)(reached)


def expect_valid(ranks, direct, blocks):
    done = set()
    for block in blocks:
        assert len({ranks[item] for item in block}) == 1
        assert done.isdisjoint(block)
        done |= set(block)
        assert all(set(direct[item]) <= done for item in block)
    assert done == set(range(len(ranks)))


@given(problems())
def test_no_grouping_without_circles_has_fewer_groups(problem):
    found = fewest_blocks(*problem)
    expect_valid(*problem, found.blocks)
    assert fewest_groups(*problem) == len(found.blocks)
    assert found.minimal


@given(st.randoms(use_true_random=False))
def test_no_order_of_the_items_has_fewer_turns(random):
    ranks = [random.randrange(4) for _ in range(random.randint(10, 14))]
    direct = [
        [random.randrange(max(0, item - 8), item) for _ in range(random.randint(0, 2))]
        for item in range(1, len(ranks))
    ]
    assert fewest_turns(ranks, [[], *direct]) == len(fewest_blocks(ranks, [[], *direct]).blocks)


@given(problems(most=24))
def test_without_a_budget_the_answer_is_valid_and_says_truly_whether_it_is_minimal(problem):
    exact = fewest_blocks(*problem)
    hasty = fewest_blocks(*problem, budget=0)
    expect_valid(*problem, hasty.blocks)
    assert hasty.bound <= len(exact.blocks) <= len(hasty.blocks)
    assert not hasty.minimal or len(hasty.blocks) == len(exact.blocks)


@given(problems(most=16))
def test_the_same_problem_has_the_same_answer(problem):
    assert fewest_blocks(*problem) == fewest_blocks(*problem)


def test_two_convex_sets_that_wait_for_each_other_are_not_both_kept_whole():
    ranks, direct = [0, 1, 1, 0], [[], [0], [], [2]]
    assert len(fewest_blocks(ranks, direct).blocks) == 3


def test_a_diamond_whose_sides_belong_to_other_ranks_needs_its_owner_twice():
    assert [(0,), (1,), (2,), (3,)] == sorted(
        fewest_blocks([0, 1, 2, 0], [[], [0], [0], [1, 2]]).blocks
    )


def test_a_side_of_a_diamond_runs_with_its_owner():
    found = fewest_blocks([0, 1, 0, 0], [[], [0], [0], [1, 2]])
    assert len(found.blocks) == 3


def test_items_that_nothing_orders_are_one_block_per_rank():
    assert fewest_blocks([0, 1, 0, 1, 0], [[]] * 5).blocks == ((0, 2, 4), (1, 3))


def test_no_items_need_no_blocks():
    assert fewest_blocks([], []).blocks == ()


def test_waiting_is_worth_it_where_the_greedy_turn_costs_a_block():
    """Rank 0 could run 0 at once, but then has to run 2 alone: 1 enables both."""
    found = fewest_blocks([0, 1, 0, 2], [[], [], [1], [0, 2]])
    assert len(found.blocks) == 3


@pytest.mark.parametrize("ranks", [2, 24])
def test_a_thousand_layers_in_modules_of_branches_are_solved_exactly(ranks):
    modules, branches, depth = 77, 4, 3
    direct, owner = [[]], [0]
    for _ in range(modules):
        entry = len(direct) - 1
        ends = []
        for _ in range(branches):
            direct += [[entry], *([len(direct) + n] for n in range(depth - 1))]
            ends.append(len(direct) - 1)
        direct.append(ends)
    owner = [(item * 7919 + item // 5) % ranks for item in range(len(direct))]
    found = fewest_blocks(owner, direct)
    expect_valid(owner, direct, found.blocks)
    assert found.minimal


def test_a_grid_with_many_ranks_gets_an_answer_within_the_budget():
    side = 20
    cells = list(product(range(side), range(side)))
    direct = [
        [n for n, inside in ((i - side, row > 0), (i - 1, column > 0)) if inside]
        for i, (row, column) in enumerate(cells)
    ]
    owner = [(row * 7 + column * 11 + row * column) % 12 for row, column in cells]
    found = fewest_blocks(owner, direct, budget=500)
    expect_valid(owner, direct, found.blocks)
    assert found.states <= 500


def grid(side, ranks):
    """Return the hardest problem we know: cells read their neighbours, their ranks are drawn."""
    draw = random.Random(0)
    direct = [
        [n for n, inside in ((i - side, i >= side), (i - 1, i % side > 0)) if inside]
        for i in range(side * side)
    ]
    return [draw.randrange(ranks) for _ in direct], direct


@pytest.mark.parametrize("budget", [0, 1, 100, 1000])
def test_the_search_expands_no_more_states_than_its_budget(budget):
    owner, direct = grid(12, 8)
    found = fewest_blocks(owner, direct, budget=budget)
    expect_valid(owner, direct, found.blocks)
    assert found.states <= budget
    assert not found.minimal


def test_pieces_of_one_problem_share_the_budget():
    """Two grids in a row, joined by an item that all others precede or follow."""
    owner, direct = grid(8, 8)
    size = len(owner)
    joint = [*direct, [size - 1], [size]]
    joint += [[size + 1 + before for before in before_item] for before_item in direct[1:]]
    found = fewest_blocks([*owner, 9, *owner], joint, budget=300)
    expect_valid([*owner, 9, *owner], joint, found.blocks)
    assert found.states <= 300


@pytest.mark.slow
def test_the_default_budget_answers_for_a_thousand_tangled_items_in_bounded_time():
    owner, direct = grid(32, 24)
    begin = time.process_time()
    found = fewest_blocks(owner, direct)
    assert time.process_time() - begin < 60  # some seconds on a quiet machine
    expect_valid(owner, direct, found.blocks)
    assert found.states <= BUDGET
    assert found.bound <= len(found.blocks) < len(owner)
