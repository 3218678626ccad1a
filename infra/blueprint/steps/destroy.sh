#!/usr/bin/env bash
# Take down one run's cluster and file system, whatever is left to do it with: the saved folder, else the
# blueprint made again, else their names. What the cloud says is there decides, never an exit code.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=markers.sh
source lustrum/steps/markers.sh
readonly SECONDS_TO_DESTROY="${LUSTRUM_DESTROY_SECONDS:-4800}" # then the sweep takes over
readonly SECONDS_IN_ALL="${LUSTRUM_BUILD_SECONDS:-10200}"      # within the build's own timeout
readonly RETRY="${LUSTRUM_RETRY_SECONDS:-60}"                   # between attempts of terraform
readonly SECONDS_TO_SILENCE="${LUSTRUM_SILENCE_SECONDS:-600}"

# --- alone ------------------------------------------------------------------------------------------
take destroy
case $? in
  1)
    if is_live "$holder" || ! take_over destroy; then
      finish duplicate "$holder" "build $holder already destroys $LUSTRUM_RUN_ID, zone attempt $LUSTRUM_ZONE_ATTEMPT"
    fi
    ;;
  2) echo "warning: the destroy marker could not be written; a deploy that starts late would not see it" ;;
esac

# A late destroy of an earlier zone attempt would take down the present one: their names are the same.
gcloud storage ls "$BUCKET/builds/$LUSTRUM_RUN_ID/z*/deploy.lock" 2> /dev/null > attempts.txt
newest=$(sed -nE 's|.*/z([0-9]+)/deploy\.lock$|\1|p' attempts.txt | sort -n | tail -1)
if [[ -n "$newest" && "$newest" -gt "$LUSTRUM_ZONE_ATTEMPT" ]]; then
  finish failed CONFIG "zone attempt $newest has begun; the destroy of attempt $LUSTRUM_ZONE_ATTEMPT would hit it"
fi

# The deploy must be over before its lock is broken.
if holder_of deploy && is_live "$holder"; then
  deployer=$holder
  gcloud builds cancel "$deployer" --region "$LUSTRUM_LOCATION" --project "$LUSTRUM_PROJECT" ||
    echo "warning: build $deployer could not be cancelled; waiting for its end"
  until ! is_live "$deployer"; do
    ((SECONDS < SECONDS_TO_SILENCE)) ||
      finish failed INFRA_TRANSIENT "build $deployer still deploys this run; destroy again when it is over"
    sleep "$PAUSE"
  done
fi

# --- terraform --------------------------------------------------------------------------------------
readonly LOCK="$KEPT/terraform/default.tflock"
break_dead_lock() { # everyone who could hold it is over: the deploy (above), earlier destroys (marker)
  exists "$LOCK" || return 0
  echo "a state lock is left by a build that is over; breaking it:"
  gcloud storage cat "$LOCK"
  gcloud storage rm --quiet "$LOCK"
}

get_folder() {
  if gcloud storage cp --quiet "$KEPT/folder.tar.gz" folder.tar.gz && tar -xzf folder.tar.gz; then
    return 0
  fi
  echo "the saved deployment folder is missing"
  python3 "$HERE/settings.py" can-recreate || return 1
  python3 "$HERE/settings.py" deployment > deployment.yaml
  # A configuration that cannot be deployed must still be destroyed: no validator, and no question to
  # the cloud about a machine type that the zone may not have.
  GHPC_MOCK_MACHINE_CONFIG='{"gpus":{"a4-highgpu-8g":{"count":8,"type":"nvidia-b200"}},"tpus":{},"cpus":{}}' \
    gcluster create lustrum/rl-a4.yaml --deployment-file deployment.yaml --out . --no-color \
    --validation-level IGNORE &&
    python3 "$HERE/bootstrap_pool.py" "$LUSTRUM_RUN_ID"
}

by_terraform() {
  local attempt code class left
  for attempt in 1 2 3; do
    break_dead_lock
    # --robust deletes the firewall rules of networks whose name contains the run id; ours never does
    # (settings.py), and run ids have one width, so that none is part of another.
    left=$((SECONDS_TO_DESTROY - SECONDS))
    timeout --signal=INT --kill-after=300 $((left > 60 ? left : 60)) \
      gcluster destroy "$LUSTRUM_RUN_ID" --auto-approve --robust --download-dependencies=false --no-color \
      < /dev/null 2>&1 | tee destroy.log
    code=${PIPESTATUS[0]}
    [[ $code == 0 ]] && return 0
    class=$(python3 "$HERE/classify.py" destroy.log | field class)
    echo "destroy attempt $attempt ended with exit code $code: $class"
    [[ $class == INFRA_TRANSIENT ]] && ((SECONDS + RETRY < SECONDS_TO_DESTROY)) || return 1
    sleep "$RETRY"
  done
  return 1
}

note=""
exists "$KEPT/terraform/default.tfstate"
if [[ $? == 1 ]]; then
  note="there was no Terraform state"
elif ! get_folder; then
  note="there was neither a deployment folder nor the values to make it again"
elif ! by_terraform; then
  note="terraform could not destroy: $(python3 "$HERE/classify.py" destroy.log | field message)"
fi

# --- the truth --------------------------------------------------------------------------------------
if ! remaining=$(python3 "$HERE/inventory.py" look); then
  : "${note:=terraform said that nothing is left}"
  echo "ERROR: $note, but this is there: $remaining"
  remaining=$(python3 "$HERE/inventory.py" sweep $((SECONDS_IN_ALL - SECONDS))) ||
    finish failed INFRA_TRANSIENT "$note; the sweep by name is not over" "$remaining"
  note="$note; swept by name"
fi

gcloud storage rm --quiet "$KEPT/**" ||
  echo "warning: the state of this zone attempt could not be dropped"
finish ok "nothing of $LUSTRUM_RUN_ID is left in $LUSTRUM_ZONE${note:+ ($note)}"
