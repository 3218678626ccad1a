"""A stand-in for the parts of Google Cloud that Lustrum uses, on loopback; see `server.Cloud`."""

from infra.local.cloud.server import Cloud
from infra.local.cloud.state import Problem, Timings

__all__ = ["Cloud", "Problem", "Timings"]
