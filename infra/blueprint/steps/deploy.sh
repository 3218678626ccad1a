#!/usr/bin/env bash
# Bring up one run's cluster and file system: once per zone attempt, and never after a destroy began.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=markers.sh
source lustrum/steps/markers.sh
readonly SECONDS_TO_DEPLOY="${LUSTRUM_DEPLOY_SECONDS:-6600}" # the module alone gives Lustre an hour

take deploy
case $? in
  1) finish duplicate "$holder" "build $holder already deploys $LUSTRUM_RUN_ID, zone attempt $LUSTRUM_ZONE_ATTEMPT" ;;
  2) fail_from mark.err ;;
esac
# In this order: destroy takes its own marker first and then looks for ours.
exists "$MARKS/destroy.lock"
case $? in
  0) finish failed CANCELLED "a destroy of this zone attempt has begun; nothing is deployed any more" ;;
  2) fail_from ls.err ;;
esac

python3 "$HERE/settings.py" deployment > deployment.yaml
# Only one validator is left out: it wants a custom role of GCS FUSE, which this blueprint does not use,
# and it fails on every project that never used it.
gcluster create lustrum/rl-a4.yaml --deployment-file deployment.yaml --out . --no-color \
  --skip-validators test_gcsfuse_iam_role_exists 2>&1 | tee create.log
[[ ${PIPESTATUS[0]} == 0 ]] || fail_from create.log
python3 "$HERE/bootstrap_pool.py" "$LUSTRUM_RUN_ID" > patch.log || fail_from patch.log

# The folder is saved before anything exists, with the lock file of its providers: what destroys is then
# what deployed. Providers themselves are fetched again.
terraform -chdir="$LUSTRUM_RUN_ID/primary" init -input=false -no-color 2>&1 | tee init.log
[[ ${PIPESTATUS[0]} == 0 ]] || fail_from init.log
tar -czf folder.tar.gz --exclude=.terraform/providers "$LUSTRUM_RUN_ID"
gcloud storage cp --quiet folder.tar.gz "$KEPT/folder.tar.gz" 2> save.log || fail_from save.log

# SIGINT lets Terraform end the running operation, store its state and give the lock back.
readonly END=$((SECONDS + SECONDS_TO_DEPLOY))
apply() {
  timeout --signal=INT --kill-after=300 $((END > SECONDS ? END - SECONDS : 1)) \
    gcluster deploy "$LUSTRUM_RUN_ID" --auto-approve --download-dependencies=false --no-color \
    < /dev/null 2>&1 | tee deploy.log
  code=${PIPESTATUS[0]}
}
apply
# The token for the cluster is read when Terraform plans; a slow Lustre create outlives it. What is up
# stays, and the next plan reads a fresh one: once.
if [[ $code == 1 ]] && python3 "$HERE/classify.py" deploy.log | grep -qi unauthorized &&
  [[ $(python3 "$HERE/classify.py" deploy.log | field class) == INFRA_TRANSIENT ]]; then
  echo "the cluster refused a token that had run out; applying once more with a fresh one"
  apply
fi
remaining=$(python3 "$HERE/inventory.py" look)
if [[ $code == 124 || $code == 137 ]]; then
  # What Terraform waited for in vain may have said why.
  [[ $(python3 "$HERE/classify.py" deploy.log | field class) == UNKNOWN ]] || fail_from deploy.log "$remaining"
  finish failed INFRA_TRANSIENT "the deploy was not over after $SECONDS_TO_DEPLOY seconds" "$remaining"
fi
[[ $code == 0 ]] || fail_from deploy.log "$remaining"

# An exit code is not a proof.
python3 "$HERE/inventory.py" ready > /dev/null ||
  finish failed INFRA_TRANSIENT "gcluster ended well, but cluster and file system are not both up: $remaining" "$remaining"
finish ok "cluster and file system $LUSTRUM_RUN_ID are up in $LUSTRUM_ZONE"
