"""Why a training ended: its own last error, read out of the end of its output.

Three things mislead a reader of such an output. What the training survived is older than its last
sign of progress, so the caller forgets lines at each step. Ray and NCCL repeat one worker's error
as errors of their own in all others, so those only count when there is nothing else. And "No space
left on device" is said of any disk: the path in the line tells which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lustrum.head.names import LUSTRE_MOUNT

GPU_FAILED = "a GPU failed"  # how a message of a broken GPU begins
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Ray's "(Worker[rank=13] pid=7, ip=10.4.2.7) ", torchrun's "[rank13]: "
_PREFIX = re.compile(
    r"^\s*(?:\([^()]{1,200}\b(?:pid|ip)=[^()]{1,200}\)\s*)?(?:\[rank\d{1,6}\]:\s*)?"
)
_ADDRESS = re.compile(r"\bip=([0-9]{1,3}(?:\.[0-9]{1,3}){3})\b")
_ERROR = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,10}[A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Exit|Failure)"
    r"(?:\(\w{1,80}\))?(?::|$)"
)
_PLACE = re.compile(r'\s*File "([^"]{1,400})", line (\d{1,9})(?:, in (\S{1,100}))?')
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_AFTERMATH = re.compile(
    r"RayTaskError|RayActorError|ActorDiedError|ActorUnavailableError|WorkerCrashedError"
    r"|NodeDiedError|ChildFailedError|CalledProcessError|DistBackendError|DistNetworkError"
    r"|DistStoreError|BrokenPipeError|ConnectionResetError|ConnectionError|EOFError"
    r"|ProcessRaisedException|ProcessExitedException"
    r"|SystemExit|NCCL error|Broken pipe|Connection (?:reset|closed) by",
)
# Faults of a GPU, not of a program; the Xid codes are those that NVIDIA's catalogue answers with
# a reset or an exchange of the GPU (13, 31, 43 and 45 are the program's own faults).
_GPU = re.compile(
    r"uncorrectable ECC|ECC error encountered|fallen off the bus|GPU is lost|device is lost"
    r"|CUDA error: (?:unknown error|no CUDA-capable device)|CUDA-capable device\(s\) is/are busy"
    r"|CUDA unknown error|system not yet initialized"
    r"|peer GPU memory over nvlink or a hardware error"
    r"|Unable to determine the device handle|hardware stack error|uncorrectable NVLink"
    r"|\bXid\b[^\n]{0,60}?[:=] ?(?:48|64|74|79|92|94|95|110|119|120|136|140|143|144|145|149)\b",
    re.IGNORECASE,
)
_OF_A_GPU = re.compile(r"CUDA|cudnn|cublas|NCCL|NVML|\bGPU\b", re.IGNORECASE)
_OOM = re.compile(
    r"out of memory|OutOfMemoryError|MemoryError|Cannot allocate memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|memory pressure|oom-?kill"
    # vLLM's engine, when the weights left no room for its cache
    r"|No available memory for the cache blocks|is less than desired GPU memory utilization",
    re.IGNORECASE,
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\bENOSPC\b|\bEDQUOT\b")
# torch.save into a full file system says nothing of space (seen with 2.11): only that the place
# it writes at is not the place it should be at.
_SHORT_WRITE = re.compile(r"unexpected pos \d{1,19} vs \d{1,19}")
# A rank waited in vain for another one; what that one died of, if it did, is an error of its own.
_TIMED_OUT = re.compile(r"Watchdog caught collective operation timeout")
_PATH = re.compile(r"(?<![\w.:/])/[^\s'\"<>:,;)]{1,400}")
# The same on every attempt, and nothing was trained yet. Source: NeMo-RL v0.4.0 to v0.7.0,
# megatron-core's OptimizerParamScheduler, huggingface_hub's errors.
_SET_UP = re.compile(
    r"Failed to parse Hydra overrides|Could not override|OverrideParseException|not in struct"
    r"|ConfigKeyError|ConfigAttributeError|MissingMandatoryValue|must be divisible"
    r"|OptimizerParamScheduler: class input value|validation dataset is required"
    r"|InterpolationKeyError|validation errors? for \w*Config\b"
    r"|unrecognized arguments|is not a valid model identifier"
    r"|larger than the maximum number of tokens that can be stored in KV cache",
    re.IGNORECASE,
)
_ACCESS = re.compile(
    r"GatedRepoError|RepositoryNotFoundError|is a gated repo|Access to (?:model|dataset) [^\n]"
    r"{1,120} is restricted|\b40[13] Client Error|Invalid user token"
    r"|trying to access a gated repo|is a gated dataset"
    r"|API key you provided is (?:either )?invalid|api_key not configured",
    re.IGNORECASE,
)
# The hub was away while the model or the data were looked up: over in minutes.
_PASSING = re.compile(
    r"LocalEntryNotFoundError|(?:timed out|Connect)[^\n]{0,80}huggingface\.co"
    r"|huggingface\.co[^\n]{0,200}(?:Max retries exceeded|timed out)|\b50[0234] Server Error"
    r"|\b429 Client Error",
    re.IGNORECASE,
)
# Ray's own word for a node that left while its actors were waited for.
_NODE_DIED = re.compile(
    r"because its node has died|due to the node dying|node (?:was|has been) preempted"
)


@dataclass(frozen=True)
class LastError:
    """What the end of an output says.

    Attributes:
        failure: the class it gives away, None for an error of the program's own.
        message: one line, "" when no line speaks of an error.
    """

    failure: str | None
    message: str


def plain(line: str, longest: int = 4000) -> str:
    """Return a line without colours and without Ray's prefix of the process that wrote it."""
    return _PREFIX.sub("", _COLOURS.sub("", line[:longest]), count=1).strip()


def last_error(
    lines: Sequence[str], lustre: str = LUSTRE_MOUNT, began: bool = True, saving: bool = False
) -> LastError:
    """Read why a training ended.

    Args:
        lines: the output since the last sign of progress, oldest first.
        lustre: where the shared file system is mounted.
        began: a step was completed, so it is no failure of the set-up.
        saving: a checkpoint was being written: a full disk without a name is then Lustre.
    """
    texts = [plain(line) for line in lines]
    errors = [index for index, text in enumerate(texts) if _ERROR.match(text)]
    own = [index for index in errors if not _AFTERMATH.search(texts[index])]
    chosen = own[-1] if own else None
    if chosen is None or _OF_A_GPU.search(texts[chosen]):
        at = next((i for i in reversed(range(len(texts))) if _GPU.search(texts[i])), None)
        if at is not None:
            told = (line[:4000] for line in lines if _GPU.search(line[:4000]))
            node = next(filter(None, map(_ADDRESS.search, told)), None)
            where = f" on node {node.group(1)}" if node else ""
            return LastError("NODE_LOST", f"{GPU_FAILED}{where}: {texts[at][:300]}")
    if chosen is None:  # no error with a name: the last line that gives a class away
        for text in reversed(texts):
            failure = _failure(text, lustre, began, saving)
            if failure or _FULL.search(text):
                return LastError(failure, _sentence(text, "", failure))
        text = texts[errors[-1]] if errors else next((one for one in reversed(texts) if one), "")
        return LastError(None, text[:300])
    for index in [chosen, *_causes(texts, own, chosen)]:
        failure = _failure(texts[index], lustre, began, saving)
        if failure or _FULL.search(texts[index]):
            return LastError(failure, _sentence(texts[index], _place(texts, index), failure))
    return LastError(None, _sentence(texts[chosen], _place(texts, chosen), None))


def _causes(texts: Sequence[str], own: Sequence[int], chosen: int) -> list[int]:
    """Return the errors that led to the chosen one, by Python's own words, newest first."""
    found, later = [], chosen
    for index in reversed([one for one in own if one < chosen]):
        if not any(text.startswith(_CHAIN) for text in texts[index:later]):
            break
        found.append(index)
        later = index
    return found


def _failure(text: str, lustre: str, began: bool, saving: bool) -> str | None:
    if _SHORT_WRITE.search(text):
        return "LUSTRE_FULL"
    if _FULL.search(text):
        return "LUSTRE_FULL" if _disk(text, lustre, saving) == lustre else None
    if _OOM.search(text):
        return "USER_OOM"
    if _NODE_DIED.search(text):
        return "NODE_LOST"
    if _TIMED_OUT.search(text):
        return "HANG"
    if began:
        return None
    if _PASSING.search(text):
        return "INFRA_TRANSIENT"
    if _ACCESS.search(text):
        return "ACCESS"
    return "CONFIG" if _SET_UP.search(text) else None


def _disk(text: str, lustre: str, saving: bool) -> str:
    """Return which disk a line calls full: a folder, or "" when it does not say."""
    paths: list[str] = _PATH.findall(text)
    root = lustre.rstrip("/") + "/"
    if any((path + "/").startswith(root) for path in paths):
        return lustre
    if any(path.startswith(("/torch_", "/dev/shm")) for path in paths):
        return "/dev/shm"
    if paths:
        return paths[0]
    return lustre if saving else ""


def _sentence(text: str, place: str, failure: str | None) -> str:
    if _FULL.search(text) and failure is None:
        disk = _disk(text, "\0", saving=False)
        text = f"a disk of the node is full{f' ({disk})' if disk else ''}, not Lustre: {text}"
    return f"{text[:300]}{place}"


def _place(texts: Sequence[str], index: int) -> str:
    """Return the innermost line of the program that the error's traceback names."""
    for text in reversed(texts[max(0, index - 12) : index]):
        match = _PLACE.match(text)
        if match:
            path, line, name = match.groups()
            where = path.rsplit("/", 1)[-1]
            return f" ({where}, line {line}{f', in {name}' if name else ''})"
        if text.startswith(_CHAIN):
            break
    return ""
