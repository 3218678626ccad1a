#!/usr/bin/env bash
# Make gcluster from its source at the pinned commit, once per project. Runs in the Go image.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=versions.sh
source lustrum/steps/versions.sh
export PATH="$PWD/bin:$PATH"

[[ -e result.json ]] && exit 0
command -v gcluster > /dev/null && exit 0

# The Go image has no Python: the result is written by hand.
trap 'printf "{\"action\": \"%s\", \"run_id\": \"%s\", \"ok\": false, \"class\": \"BUILD_ERROR\", \"message\": \"gcluster %s could not be built, see the log\", \"remaining\": []}" \
  "$LUSTRUM_ACTION" "$LUSTRUM_RUN_ID" "$GCLUSTER_VERSION" > "$workspace/result.json"; exit 0' ERR
workspace=$PWD

git init -q gcluster-source
cd gcluster-source
git fetch -q --depth 1 "$GCLUSTER_SOURCE" "$GCLUSTER_COMMIT" # the commit's hash is its checksum
git checkout -q FETCH_HEAD
export CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOAMD64=v1 GOTOOLCHAIN=local
go build -trimpath -buildvcs=false -o ../bin/gcluster gcluster.go
cd "$workspace"
sha256sum -c <<< "$GCLUSTER_SHA256  bin/gcluster"
touch gcluster-is-new
