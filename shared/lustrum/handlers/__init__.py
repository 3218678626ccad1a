"""The steps of a run: what each Cloud Function does, over injected services.

Each returns in seconds and is safe to repeat; waiting is the workflow's work.
"""
