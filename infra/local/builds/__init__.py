"""Cloud Build on this machine: runs the real cloudbuild.yaml, with stand-ins for gcluster and
gcloud.
"""
