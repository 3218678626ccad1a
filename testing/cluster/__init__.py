"""The cluster tier's harness: a real kube-apiserver, KubeRay, played nodes and pods."""
