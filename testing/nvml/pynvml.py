"""NVML without a GPU: the names, values and errors of `nvidia-ml-py`, the figures from a file.

Put this folder on PYTHONPATH and name a JSON file in FAKE_NVML: a list, one object a GPU, of
utilisation (percent), memory_used and memory_total (bytes), milliwatts, ecc, xid (a list of codes,
each told once). A key that is absent is a figure that the GPU does not support. The file is read
anew at each call; while it is absent there is no driver.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_TIMEOUT = 10
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_VOLATILE_ECC = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
nvmlEventTypeXidCriticalError = 0x0000000000000008


class NVMLError(Exception):
    """As NVIDIA's: its value is the return code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def _gpus() -> list[dict[str, Any]]:
    try:
        with open(os.environ["FAKE_NVML"], encoding="utf-8") as file:
            found: list[dict[str, Any]] = json.load(file)
            return found
    except (KeyError, OSError):
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND) from None


def _figure(handle: int, name: str) -> Any:
    value = _gpus()[handle].get(name)
    if value is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return value


def nvmlInit() -> None:
    _gpus()


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=_figure(handle, "utilisation"), memory=0)


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    total, used = _figure(handle, "memory_total"), _figure(handle, "memory_used")
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return int(_figure(handle, "milliwatts"))


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:
    assert (kind, counter) == (NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)
    return int(_figure(handle, "ecc"))


def nvmlEventSetCreate() -> dict[int, int]:
    return {}


def nvmlDeviceRegisterEvents(handle: int, kinds: int, events: dict[int, int]) -> None:
    assert kinds == nvmlEventTypeXidCriticalError
    events[handle] = 0


def nvmlEventSetWait_v2(events: dict[int, int], milliseconds: int) -> SimpleNamespace:
    for handle, told in events.items():
        codes = _gpus()[handle].get("xid", [])
        if told < len(codes):
            events[handle] = told + 1
            return SimpleNamespace(
                device=handle, eventType=nvmlEventTypeXidCriticalError, eventData=codes[told]
            )
    raise NVMLError(NVML_ERROR_TIMEOUT)
