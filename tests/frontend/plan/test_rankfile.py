from dataclasses import replace

import pytest
from placements import placements

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.plan.tables import hostfile, rankfile

FIRST, SECOND, THIRD = placements("edge01_cpu1-3", "edge01_gpu", "edge04_cpu4,5,8")
PLACES = (replace(FIRST, cores=(1, 2, 3)), SECOND, replace(THIRD, cores=(4, 5, 8)))


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
