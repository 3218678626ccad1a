"""The supervisor: what Lustrum runs on the Ray head, one zip application of standard library.

    python3 supervisor.pyz MODE --spec SPEC       SPEC: a JSON file, or the JSON itself; no secrets

It arrives as a ConfigMap and runs in the image's Python (3.9 or newer); of Lustrum it has the
modules that `archive.py` lists and no other. `Spec` in `spec.py` lists every key.

Modes
    stage   folders, earlier checkpoint, code and model onto Lustre, before any GPU is up
    train   one attempt: clean, check, run the command, watch its log and its `step_N`, tell
    list    one `checkpoint.list` line
    prune   keep the newest `keep` complete steps, remove the rest; never the newest complete

Protocol. Each event is one line of standard output, `LUSTRUM {json}`; the types in PUBLISHED
(`voice.py`) also go to Pub/Sub. A failed or slow publish never fails or delays the job. Every
event carries `type`, `run_id`, `attempt`, `at` (RFC 3339) and `event_id` =
`<run_id>-a<attempt>-<type>-<step>` (`stage.*`: the start in epoch milliseconds instead of the
step).
    stage.progress   phase, bytes
    stage.done       free_bytes, capacity_bytes, resume_step
    stage.failed     class, message
    attempt.started  step, max_steps
    job.progress     step, max_steps, phase, reward, step_seconds, save_seconds, quiet_seconds,
                     steps (step, reward, seconds of each step since the last such event),
                     gpus (null, or what `GpuUse.report` returns)
    checkpoint.saved step, max_steps, checkpoint {step, files, bytes, seconds}, manifest, class
    checkpoint.set_aside, checkpoint.pruned   steps
    job.stalled      step, quiet_seconds
    job.gpus_idle    step, idle_seconds  (once for each time they fall idle)
    job.completed    step, exit_code, total_steps, max_steps, class, message, ended: goal,
                     time_limit, data or null  (the last thing said)
    checkpoint.list  checkpoints [{step, files, bytes, total_steps, complete}], free_bytes,
                     capacity_bytes

Exit code: the training's own (128 + n when signal n ended it), else EXITS[class] (`failures.py`).
`class` is null unless the supervisor itself knows why. Exit 0 with total_steps < max_steps is
possible: NeMo-RL stops early at `checkpoint_must_save_by`, and at the end of its data.

On disk. NeMo-RL writes `tmp_step_N` and renames it to `step_N`: the rename is the commit. Into
each committed step goes `lustrum-manifest.json` {step, files, bytes, sizes, total_steps, run_id,
attempt, written_at}; files and bytes do not count the manifest itself.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict

from lustrum.head.checkpoint_files import all_steps, prune
from lustrum.head.exits import EXITS, JobFailed, Stopped, failure_of
from lustrum.head.network import AccessToken, Publisher
from lustrum.head.output import Voice
from lustrum.head.process import Signals
from lustrum.head.spec import Spec, read_spec
from lustrum.head.stage import stage
from lustrum.head.train import train


def list_checkpoints(spec: Spec, voice: Voice) -> None:
    """Say what is on Lustre, changing nothing."""
    usage = shutil.disk_usage(spec.lustre)
    voice.event(
        "checkpoint.list",
        checkpoints=[asdict(one) for one in all_steps(spec)],
        free_bytes=usage.free,
        capacity_bytes=usage.total,
    )


def main(arguments: list[str]) -> int:
    """Run one mode; the exit code."""
    parser = argparse.ArgumentParser(description="What Lustrum runs on the Ray head.")
    parser.add_argument("mode", choices=("stage", "train", "list", "prune"))
    parser.add_argument("--spec", required=True, help="a JSON file, or the JSON itself")
    options = parser.parse_args(arguments)
    spec = Spec(run_id="unknown")
    try:
        spec = read_spec(options.spec)
        voice, signals, token = Voice(spec), Signals(), AccessToken(spec)
        if options.mode == "list":
            list_checkpoints(spec, voice)
            return 0
        if options.mode == "prune":
            prune(spec, voice)
            return 0
        publisher = Publisher(spec, token, voice)
        if spec.project is not None:
            voice.publish = publisher.offer
            publisher.start()
        try:
            run = train if options.mode == "train" else stage
            return run(spec, voice, token, signals)
        finally:
            publisher.close(spec.flush_seconds)
            voice.close(spec.flush_seconds)
    except Stopped as stopped:
        return stopped.exit_code
    except (JobFailed, OSError) as error:
        failure = error.failure if isinstance(error, JobFailed) else failure_of(error)
        kind = {"train": "job.completed", "stage": "stage.failed"}.get(options.mode, "failed")
        Voice(spec).event(kind, exit_code=EXITS[failure], message=str(error), failure=failure)
        return EXITS[failure]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
