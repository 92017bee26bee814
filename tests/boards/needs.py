"""What boards need of this machine, and what of it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from boards.system import ENVIRONMENT, SYSTEM_PATH

PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "rsync": "rsync",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
"""Program -> its package in Debian."""
OF_RANKSLICE = ("rsync", "ssh")
"""Those that RankSlice calls itself, which it finds in the tests' own ``PATH``."""

# One board without its processes, in namespaces that end with the trial.
TRIAL = """
set -e
mount -t tmpfs trial /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay trial -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
ip link add name trial0 type bridge
ip link add name trial1 type veth peer name trial2
tc qdisc add dev trial1 root tbf rate 1gbit burst 256kb latency 50ms
"""


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are not here."""
    return sorted(
        {
            package
            for program, package in PACKAGES.items()
            if shutil.which(program, path=SYSTEM_PATH) is None
            or (program in OF_RANKSLICE and shutil.which(program) is None)
        }
    )


def kernel_refusal() -> str:
    """Return what the kernel says to namespaces, overlays and bridges; empty if it has them."""
    arguments = ["unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--time"]
    done = subprocess.run(
        [*arguments, "sh", "-c", TRIAL],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    return done.stderr.strip() if done.returncode else ""


@cache
def why_not() -> str:
    """Return why there can be no boards here, empty if there can."""
    if os.geteuid() != 0:
        return "virtual boards need root: network namespaces, bridges and mounts are made for them"
    packages = missing_packages()
    if packages:
        names = " ".join(packages)
        return f"virtual boards need Debian packages: apt-get install --yes {names}"
    refusal = kernel_refusal()
    if refusal:
        return f"virtual boards need namespaces, overlays and bridges, but here: {refusal}"
    return ""
