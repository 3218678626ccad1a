#!/usr/bin/env bash
# Check what the build was told, then fetch the pinned tools. Runs in the gcloud image.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=versions.sh
source lustrum/steps/versions.sh
export PATH="$PWD/bin:$PATH"

python3 lustrum/steps/settings.py check || exit 0 # result.json says why; report.sh and verdict.sh follow

trap 'python3 lustrum/steps/result.py failed "$class" "the build'"'"'s tools could not be made ready: $what"; exit 0' ERR
class=BUILD_ERROR what="the place for them"
mkdir -p bin
has() { # has COMMAND VERSION: it is on the PATH in the pinned version
  command -v "$1" > /dev/null && "$1" --version 2> /dev/null | grep -qF "$2"
}

if ! has gcluster "$GCLUSTER_VERSION"; then
  class=INFRA_TRANSIENT what="download of gcluster $GCLUSTER_VERSION"
  curl -fsSL --retry 5 --retry-all-errors -o gcluster.zip "$GCLUSTER_BUNDLE"
  class=BUILD_ERROR what="checksum of gcluster $GCLUSTER_VERSION (terraform variable gcluster_sha256)"
  sha256sum -c <<< "$LUSTRUM_GCLUSTER_SHA256  gcluster.zip"
  what="bundle of gcluster $GCLUSTER_VERSION"
  python3 -m zipfile -e gcluster.zip gcluster-bundle
  cp "$(find gcluster-bundle -type f -name gcluster -print -quit)" bin/gcluster
  chmod +x bin/gcluster
fi

if ! has terraform "v$TERRAFORM_VERSION"; then
  zip="terraform_${TERRAFORM_VERSION}_linux_amd64.zip"
  class=INFRA_TRANSIENT what="download of terraform $TERRAFORM_VERSION"
  curl -fsSL --retry 5 --retry-all-errors -o terraform.zip \
    "https://releases.hashicorp.com/terraform/$TERRAFORM_VERSION/$zip"
  class=BUILD_ERROR what="checksum of terraform $TERRAFORM_VERSION"
  sha256sum -c <<< "$TERRAFORM_SHA256  terraform.zip"
  python3 -m zipfile -e terraform.zip bin
  chmod +x bin/terraform
fi

# gcluster refuses to run without packer, although the blueprint builds no image.
if ! command -v packer > /dev/null; then
  printf '#!/bin/sh\necho "no image is built here" >&2\nexit 1\n' > bin/packer
  chmod +x bin/packer
fi
