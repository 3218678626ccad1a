"""Adapters: the rim of Lustrum around Google Cloud, Kubernetes and Ray. The core never imports
them.
"""
