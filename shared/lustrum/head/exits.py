"""Why the supervisor ends a job: the failure classes it knows and their exit codes."""

from __future__ import annotations

import errno

EXITS = {
    "UNKNOWN": 70,
    "LUSTRE_CONFIG": 72,
    "LUSTRE_NETWORK": 73,
    "LUSTRE_FULL": 74,
    "INFRA_TRANSIENT": 75,
    "ACCESS": 77,
    "CONFIG": 78,
    "HANG": 85,
    "GPUS_IDLE": 86,
}


class JobFailed(Exception):
    """The supervisor itself ends the job, with a failure class of Lustrum's table."""

    def __init__(self, failure: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.exit_code = EXITS[failure] if exit_code is None else exit_code


class Stopped(Exception):
    """A signal arrived while no child was running."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.exit_code = 128 + signum


def failure_of(error: OSError) -> str:
    """The failure class of an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "LUSTRE_FULL"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return "LUSTRE_CONFIG"
    if error.errno in (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT):
        return "LUSTRE_NETWORK"
    return "UNKNOWN"
