"""Which failure class an error text of gcluster, Terraform or gcloud belongs to. Standard library
only.

python3 classify.py LOG    print {"class", "message"} of a log file
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

# Ordered: the first row that occurs in the error text decides, so what is rarer and more telling
# comes first. Codes are matched as they are written; prose in either case.
TABLE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "STOCKOUT",
        (
            r"ZONE_RESOURCE_POOL_EXHAUSTED(_WITH_DETAILS)?",
            r"GCE_STOCKOUT",
            r"INSUFFICIENT_CAPACITY",
            r"resource_availability",
            r"(?i:stockout)",
            r"VM_MIN_COUNT_NOT_REACHED",
            r"(?i:does not have (enough|available|sufficient) (resources|capacity))",
            r"(?i:currently unavailable in the [^\n]{0,80}zone)",
            r"(?i:out of resources)",
            r"(?i:not enough (resources|capacity))",
            r"(?i:no available (resources|capacity))",
            r"(?i:insufficient capacity)",
            r"RESOURCE_EXHAUSTED(?![^\n]*[Qq]uota)(?![^\n]*\bIPs?\b)",
            r"(?i:error code 8\b)(?![^\n]*[Qq]uota)",
        ),
    ),
    (
        # Calls per minute: over in a minute, and worded as a quota (403, "Quota exceeded").
        "INFRA_TRANSIENT",
        (
            r"(?i:(user)?rate_?limit_?exceeded)",
            r"(?i:(requests|queries|mutations|operations|calls)[^\n']{0,40}"
            r" per [^\n']{0,30}(second|minute))",
            r"(?i:quota (metric|group) '[^'\n]*(requests|queries)')",
            r"(?i:too many requests)",
            # before BUILD_ERROR's "checksum": the registry was away, nothing is wrong with a file
            r"(?i:could not query provider registry)",
        ),
    ),
    (
        # What only a person can change, though its code (403, 400, 9) is that of another class.
        "CONFIG",
        (
            r"(?i:constraints?/[a-z]+\.[a-z]+)",
            r"(?i:org(anization)? ?policy)",
            r"(?i:couldn't find free blocks)",
            r"(?i:(has not been used in project|API is not enabled))",
            r"(?i:requires billing to be enabled)",
            r"(?i:billing account [^\n]{0,60}(disabled|not open|closed))",
            r"SERVICE_DISABLED",
            r"accessNotConfigured",
            r"(?i:admission webhook [^\n]{0,120}denied the request)",
        ),
    ),
    (
        "BUILD_ERROR",
        (
            r"(?i:plugin did not respond)",
            r"(?i:plugin (has )?crashed)",
            r"(?i:plugin encountered an error)",
            r"\.\(\*GRPCProvider\)\.\w+ request was cancelled",
            r"(?i:failed to (instantiate|load) provider|could not load plugin)",
            r"(?i:unrecognized remote plugin message)",
            r"^panic: ",
        ),
    ),
    (
        "QUOTA",
        (
            r"QUOTA_EXCEEDED",
            r"(?i:quota '[^']*' exceeded)",
            r"(?i:quota exceeded)",
            r"quotaExceeded",
            r"(?i:insufficient (regional )?quota)",
            r"(?i:exceed(s|ed|ing)? [^\n]{0,60}quota)",
            r"RESOURCE_EXHAUSTED[^\n]*[Qq]uota",
            r"(?i:quota limit)",
        ),
    ),
    ("LUSTRE_NETWORK", (r"(?i:is the mgs running)", r"mount\.lustre")),
    (
        # Something that is there but busy, or not up yet: before the codes (400, 409, 500) that
        # come with it.
        "INFRA_TRANSIENT",
        (
            r"(?i:(is )?currently (being )?(repair|reconcil|upgrad|operat|creat|updat|delet|resiz)"
            r"(ed|ing))",
            r"(?i:please wait and try again|try again once)",
            r"resource(NotReady|InUseByAnotherResource)",
            r"(?i:resource [^\n]{0,120} is not ready)",
            r"(?i:all cluster resources were brought up, but)",
            r"(?i:component [^\n]{0,120} is unhealthy)",
            r"(?i:failed (to call|calling) webhook)",
            r"(?i:no endpoints available for service)",
            r"(?i:error code 1[34]\b)",
            r"(?i:an internal error (has )?occurred|internal error encountered)",
        ),
    ),
    (
        "LUSTRE_CONFIG",
        (
            r"(?i:(capacity_?gib|storage_?throughput)[^\n]{0,120}(invalid|must|not supported))",
            r"(?i:(invalid|unsupported)[^\n]{0,120}(capacity_?gib|per_?unit_?storage_?throughput))",
        ),
    ),
    (
        # The cluster's own 401: Terraform read the token when it planned, and a Lustre create can
        # outlive it. The next attempt reads a fresh one.
        "INFRA_TRANSIENT",
        (
            r"(?is:\bunauthorized\b(?:(?!\berror\b).){0,300}?"
            r"\b(?:kubectl_manifest|helm_release|kubernetes_\w+)\.)",
        ),
    ),
    (
        "ACCESS",
        (
            r"PERMISSION_DENIED",
            r"(?i:permission denied)",
            r"\bError 40[13]\b",
            r"\bcode[:=]\s*40[13]\b",
            r"(?i:does not have (storage\.|permission|serviceusage|access)[^\n]*)",
            r"(?i:\bforbidden\b)",
            r"(?i:required '[^']+' permission)",
            r"(?i:\bunauthorized\b)",
            r"(?i:could not find default credentials)",
            r"actAs",
        ),
    ),
    (
        "BUILD_ERROR",
        (
            r"(?i:checksum)",
            r"the cluster module cannot be patched",
            r"(?i:unsupported terraform core version)",
            r"(?i:command not found)",
            r"(?i:is missing\. download is explicitly disabled)",
            r"(?i:no space left on device)",
        ),
    ),
    (
        "CONFIG",
        (
            r"(?i:IPs? (addresses )?(are )?exhausted)",
            r"IP_SPACE_EXHAUSTED",
            r"RANGE_EXHAUSTED",
            r"(?i:deployment variable \"[^\"]+\" was not set)",
            r"(?i:is not enabled)",
            r"(?i:must have private service access)",
            r"(?i:spot consumption option only works)",
            r"(?i:reservation is configured correctly)",
            r"(?i:custom role [^\n]*not)",
            r"gke\.gcsfuse\.profileUser",
            r"INVALID_ARGUMENT",
            r"\bError 40[049]\b(?![^\n]*(in progress|incompatible|not ready))",
            r"(?i:(conflicts|overlaps) with)",
            r"(?i:could not be found in project)",
            r"(?i:not found in zone)",
            r"(?i:invalid (value|machine ?type|argument|function argument))",
            r"(?i:unsupported argument)",
            r"(?i:reference to undeclared)",
            r"(?i:failed validation)",
            r"(?i:validator \"[^\"]+\" failed)",
        ),
    ),
    (
        "INFRA_TRANSIENT",
        (
            r"(?i:producer services[^\n]*still using this connection)",
            r"FAILED_PRECONDITION",
            r"(?i:error acquiring the state lock)",
            r"(?i:operation [^\n]{0,80}in progress)",
            r"(?i:incompatible operation)",
            r"\bError (429|50[0-4])\b",
            r"\bUNAVAILABLE\b",
            r"\bABORTED\b",
            r"\bDEADLINE_EXCEEDED\b",
            r"(?i:timeout while waiting for state)",
            r"(?i:(i/o|tls handshake|client\.) ?timeout)",
            r"(?i:connection (reset|refused|timed out))",
            r"(?i:context deadline exceeded)",
            r"(?i:failed to query available provider packages)",
            r"(?i:could not (connect|resolve))",
            r"(?i:kubernetes cluster unreachable)",
            r"(?i:etcdserver: )",
            r"(?i:server is currently unable to handle the request)",
            r"(?i:client connection lost)",
            r"(?i:uninstallation completed with [^\n]*timed out)",
            r"(?i:timed out waiting for the condition)",
            r"\bINTERNAL\b(?: ERROR|:)",
            r"(?i:\bEOF$)",
        ),
    ),
    # It wraps every error of an instance; without one inside, machines did not come.
    ("STOCKOUT", (r"(?i:not all instances running in igm)",)),
)

_COMPILED = tuple((name, re.compile("|".join(patterns), re.MULTILINE)) for name, patterns in TABLE)
_BOX = re.compile(r"^[\s│╷╵]+|\x1b\[[0-9;]*m", re.MULTILINE)
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z?:?\s*", re.MULTILINE)
_ERROR = re.compile(r"\bError\b|\bERROR\b|\bFATAL\b|\bfatal:", re.MULTILINE)
CONTEXT = 60  # lines read when a log names no error


def error_text(log: str) -> str:
    """Return the part of a log that speaks of errors, without boxes, colours and time stamps.

    Progress lines are left out on purpose: paths such as ``modules/internal`` look like error
    codes.
    """
    plain = _STAMP.sub("", _BOX.sub("", log))
    lines = plain.splitlines()
    first = next((i for i, line in enumerate(lines) if _ERROR.search(line)), None)
    return "\n".join(lines[-CONTEXT:] if first is None else lines[first:])


def classify(log: str) -> tuple[str, str]:
    """Return the failure class of a log and one sentence of at most 500 characters about it."""
    text = error_text(log)
    for name, pattern in _COMPILED:
        found = pattern.search(text)
        if found:
            return name, _sentence(text, found.start())
    return "UNKNOWN", _sentence(text, 0)


def _sentence(text: str, at: int) -> str:
    """Return the line at a position, with the error line above it if that is another one."""
    lines = text.splitlines()
    here = text.count("\n", 0, at)
    above = next((i for i in range(here, -1, -1) if _ERROR.search(lines[i])), here) if lines else 0
    chosen = lines[above : above + 1] + (
        [lines[here]] if here != above else lines[here + 1 : here + 3]
    )
    return " ".join(part.strip() for part in chosen if part.strip())[:500] or "no error text"


def main(argv: list[str]) -> int:
    """Print the class of a log file."""
    name, message = classify(Path(argv[1]).read_text(errors="replace"))
    print(json.dumps({"class": name, "message": message}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
