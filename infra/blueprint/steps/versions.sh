# What a build runs, pinned. The modules are embedded in gcluster, so its version pins them as well.
# shellcheck shell=bash disable=SC2034
GCLUSTER_VERSION=v1.95.0
# Its checksum comes from the trigger (_GCLUSTER_SHA256, variable gcluster_sha256 of infra/terraform):
# the release page shows it beside the bundle, and nobody else can vouch for it.
GCLUSTER_BUNDLE=https://github.com/GoogleCloudPlatform/cluster-toolkit/releases/download/v1.95.0/gcluster_bundle_linux_amd64.zip
TERRAFORM_VERSION=1.12.2
TERRAFORM_SHA256=1eaed12ca41fcfe094da3d76a7e9aa0639ad3409c43be0103ee9f5a1ff4b7437 # of the linux_amd64 zip
