"""What a second user of the machine can do to a job: nothing, under both versions of Open MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import rankslice
from real_jobs import chain_folder, debians_mpirun, let_ranks_sleep, wheels_mpirun
from second_account import AS_STRANGER, needs_root, open_place, process_of_victim

both_mpiruns = pytest.mark.parametrize("mpirun", [wheels_mpirun, debians_mpirun])

TAKES_ALL_NAMES = """
process, user, victim, pid, start, *places = sys.argv[1:]
for place in places:
    for name in (f"rankslice-{user}-{process}-{start}", f"rankslice-user-{user}"):
        folder = pathlib.Path(place, name)
        folder.mkdir()
        folder.chmod(0o777)
        for file in (".rank-0", ".rank-1", "rank-2", ".rankslice-lock"):
            (folder / file).symlink_to(victim)
        os.mkfifo(folder / "rank-3")
        # A page of a job that has failed, with another process of the victim's.
        page = int(pid).to_bytes(8, sys.byteorder) + bytes(8) + (2).to_bytes(8, sys.byteorder)
        (folder / "rank-4").write_bytes(page.ljust(1048, b"x"))
"""

IN_A_NAMESPACE = """
mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 77
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
"$1" -c "$2" $$ "$(id -u)" "$3" "$4" "$start" /dev/shm "$TMPDIR" || exit 78
shift 4
exec "$@"
"""
"""Become mpirun, once the stranger has taken each name that its process number tells."""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chain_folder(tmp_path_factory.mktemp("job"), 2)
    let_ranks_sleep(folder, 1)
    return folder


@both_mpiruns
def test_a_typed_mpirun_line_does_without_names_that_another_user_has_taken(
    out: Path, tmp_path: Path, mpirun: Callable[[], Path]
) -> None:
    needs_root()
    shown = rankslice("run", out, "--dry-run", "--frames", "3", "--mpirun", mpirun())
    precious = tmp_path / "precious"
    precious.write_bytes(b"p" * 5000)
    with open_place() as place, process_of_victim() as victim:
        before = [sys.executable, AS_STRANGER + TAKES_ALL_NAMES, precious, str(victim.pid)]
        in_namespace = ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh"]
        ended = subprocess.run(
            [*in_namespace, *before, *shown.out.split()],
            env={**os.environ, "TMPDIR": str(place), "XDG_RUNTIME_DIR": ""},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if ended.returncode == 77:
            pytest.skip(f"needs a mount namespace of its own: {ended.stderr}")
        assert 0 == ended.returncode, ended.stderr
        assert "completed 3" in ended.stdout
        assert (
            "rankslice: there is no place that is this user's own for status pages: no guard"
            " watches this job"
        ) in ended.stderr
        assert victim.poll() is None
    assert b"p" * 5000 == precious.read_bytes()
