"""Network namespaces of our own, so that pods can have addresses.

An API server refuses loopback addresses as endpoints, so a Ray head that its service proxy is to
reach needs another one. The session moves into a network namespace with nothing but ``lo`` and a
bridge; each pod with a real process gets a namespace behind that bridge. No way leads out.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time

POD_PREFIX = "10.201"  # /16
BRIDGE_ADDRESS = f"{POD_PREFIX}.0.1"  # ours: where pods reach the session

# What a pod's first process runs once its end of the wire is there.
POD_SETUP = """
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up
ip addr add {address}/16 dev eth0
ip link set eth0 up
ip route add default via {gateway}
"""

_CLONE_NEWNET = 0x40000000
_entered = False


class NoNamespaceError(RuntimeError):
    """This process may not make a network namespace; the message says what to do."""


def enter_own_namespace() -> None:
    """Move the main thread, and all processes it starts from now on, into a new namespace.

    Idempotent. Needs CAP_SYS_ADMIN (root, or ``unshare --map-root-user --net`` around pytest).

    Raises:
        NoNamespaceError: not permitted, or not Linux.
    """
    global _entered
    if _entered:
        return
    if shutil.which("ip") is None:
        raise NoNamespaceError("no `ip` command: install iproute2 (Linux only)")
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (AttributeError, OSError) as error:
        raise NoNamespaceError(
            f"no network namespace for pods ({error}): run as root, or put"
            " `unshare --map-root-user --net` before the command (Linux only)"
        ) from error
    _ip("link set lo up")
    _ip("link add pods type bridge")
    _ip(f"addr add {BRIDGE_ADDRESS}/16 dev pods")
    _ip("link set pods up")
    _entered = True


def pod_address(number: int) -> str:
    """The address of the pod with this number, 1 to 60,000."""
    return f"{POD_PREFIX}.{1 + number // 250}.{number % 250 + 1}"


def pod_setup(address: str) -> str:
    """The shell lines that give a pod's own namespace its address."""
    return POD_SETUP.format(address=address, gateway=BRIDGE_ADDRESS)


def wire(pid: int, address: str) -> None:
    """Lead a wire from the bridge into the namespace of a process that has left ours."""
    ours = os.readlink("/proc/thread-self/ns/net")
    deadline = time.monotonic() + 10
    while os.readlink(f"/proc/{pid}/ns/net") == ours:
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {pid} did not enter a network namespace")
        time.sleep(0.01)
    third, fourth = address.split(".")[2:]
    _ip(f"link add p{third}-{fourth} type veth peer name eth0 netns {pid}")
    _ip(f"link set p{third}-{fourth} master pods up")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, timeout=10)
