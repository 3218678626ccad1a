"""What NVML says of one machine's GPUs.

NVML is asked through NVIDIA's own `nvidia-ml-py` (module `pynvml`), or through the copy of it that
every Ray brings for its dashboard; without either, or without a driver, there are no GPUs to tell
of. Source of names and units: NVML's API reference and `pynvml.py` 13.580.
"""

from __future__ import annotations

import importlib
from typing import Any

Reading = dict[str, Any]
COPIES = ("pynvml", "ray._private.thirdparty.pynvml")


def load_nvml() -> Any:
    """Return an initialised NVML module, None when this machine has none."""
    for name in COPIES:
        try:
            nvml = importlib.import_module(name)
            nvml.nvmlInit()
        except Exception:  # no module, no library, no driver, no right: no GPUs to tell of
            continue
        return nvml
    return None


class GpuCounters:
    """Reads all GPUs of the machine it lives on, again and again.

    Xid errors come as events, to whoever has asked for them before: so they are counted from the
    first reading on. A figure that a GPU does not have (no ECC memory, a virtual machine without
    power figures) is None.
    """

    def __init__(self, node: str = "", nvml: Any = None) -> None:
        self._nvml = load_nvml() if nvml is None else nvml
        self._node = node
        self._handles: list[Any] = []
        self._xids: list[list[int]] = []
        self._events: Any = None
        if self._nvml is not None:
            count = self._ask("nvmlDeviceGetCount") or 0
            found = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
            self._handles = [handle for handle in found if handle is not None]
            self._xids = [[] for _ in self._handles]
            self._listen()

    def read(self) -> list[Reading]:
        """Return one reading for each GPU.

        Keys: node, index, utilisation (percent of the last second or less in which a kernel ran),
        memory_used and memory_total (bytes), watts, ecc (uncorrectable errors since the driver was
        loaded), xid (the codes since the first reading, oldest first).
        """
        if self._nvml is None:
            return []
        self._collect()
        return [self._reading(index) for index in range(len(self._handles))]

    def _reading(self, index: int) -> Reading:
        nvml, handle = self._nvml, self._handles[index]
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        milliwatts = self._ask("nvmlDeviceGetPowerUsage", handle)
        return {
            "node": self._node,
            "index": index,
            "utilisation": None if rates is None else int(rates.gpu),
            "memory_used": None if memory is None else int(memory.used),
            "memory_total": None if memory is None else int(memory.total),
            "watts": None if milliwatts is None else milliwatts / 1000,
            "ecc": self._ask(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            "xid": list(self._xids[index]),
        }

    def _listen(self) -> None:
        self._events = self._ask("nvmlEventSetCreate")
        if self._events is None:
            return
        for handle in self._handles:
            kind = self._nvml.nvmlEventTypeXidCriticalError
            self._ask("nvmlDeviceRegisterEvents", handle, kind, self._events)

    def _collect(self) -> None:
        """Take the Xid events that wait; at most 100, for a broken GPU may send without end."""
        if self._events is None:
            return
        for _ in range(100):
            event = self._ask("nvmlEventSetWait_v2", self._events, 0)
            if event is None:  # NVML_ERROR_TIMEOUT: none waits
                return
            told = self._ask("nvmlDeviceGetIndex", event.device)
            if told is not None and told < len(self._xids) and len(self._xids[told]) < 100:
                self._xids[told].append(int(event.eventData))

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call NVML; None when it refuses (not supported, GPU is lost, time-out)."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None
