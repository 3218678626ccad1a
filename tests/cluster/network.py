"""A network namespace of our own, so that pods can have addresses.

An API server refuses loopback addresses as endpoints, so a Ray head that its service proxy is to
reach needs another one. In a network namespace that this process makes for itself there is no
interface but ``lo``; a whole prefix is put on it and nothing can leave the machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

POD_PREFIX = "10.201"  # /16, local to the namespace

_CLONE_NEWNET = 0x40000000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
_IFF_UP = 1

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
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (AttributeError, OSError) as error:
        raise NoNamespaceError(
            f"no network namespace for pods ({error}): run as root, or put"
            " `unshare --map-root-user --net` before the command (Linux only)"
        ) from error
    _bring_up_loopback()
    _entered = True


def pod_address(number: int) -> str:
    """The address of the pod with this number, 1 to 65,000."""
    return f"{POD_PREFIX}.{number // 250}.{number % 250 + 1}"


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
        # An alias: on a loopback interface the kernel makes every address of the prefix local.
        for code, address in (
            (_SIOCSIFADDR, f"{POD_PREFIX}.0.1"),
            (_SIOCSIFNETMASK, "255.255.0.0"),
        ):
            packed = struct.pack(
                "16sHH4s8x", b"lo:pods", socket.AF_INET, 0, socket.inet_aton(address)
            )
            fcntl.ioctl(control, code, packed)
