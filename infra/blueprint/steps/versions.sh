# What a build runs, pinned. The modules are embedded in gcluster, so its version pins them as well.
# shellcheck shell=bash disable=SC2034
GCLUSTER_VERSION=v1.95.0
GCLUSTER_SOURCE=https://github.com/GoogleCloudPlatform/cluster-toolkit
GCLUSTER_COMMIT=1047080375afbb44da4b596be314634e7486af4a
# Of the binary that build_gcluster.sh makes from that commit with Go 1.24.6: the compiler is
# reproducible, so any honest build has this sum, wherever it was made.
GCLUSTER_SHA256=ead756772f9c445084605cb1ce84e5f576a3703e7e0d7e982ef6d39503c98ab3
TERRAFORM_VERSION=1.12.2
TERRAFORM_SHA256=1eaed12ca41fcfe094da3d76a7e9aa0639ad3409c43be0103ee9f5a1ff4b7437 # of the linux_amd64 zip
