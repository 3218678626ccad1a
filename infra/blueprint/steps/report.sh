#!/usr/bin/env bash
# Hand the result over, in a step that succeeds: as build step output, and as an object beside the markers
# for readers of a build whose outputs are gone.
set -uo pipefail
[[ -e result.json ]] || python3 lustrum/steps/result.py failed BUILD_ERROR "an earlier step left no result"
cp result.json "$BUILDER_OUTPUT/output"
if [[ "$LUSTRUM_RUN_ID" =~ ^rl-[0-9a-f]{10}$ && "$LUSTRUM_STATE_BUCKET" =~ ^[a-z0-9][-a-z0-9_.]+$ ]]; then
  gcloud storage cp --quiet result.json \
    "gs://$LUSTRUM_STATE_BUCKET/builds/$LUSTRUM_RUN_ID/z$LUSTRUM_ZONE_ATTEMPT/$LUSTRUM_ACTION-$LUSTRUM_BUILD_ID.json" ||
    echo "warning: the result was not kept in the bucket"
fi
exit 0
