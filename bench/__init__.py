"""What is fast and what it costs, measured: ratios against a peer or a baseline in one run."""


class Unavailable(Exception):
    """A benchmark needs what this machine does not have; the message says what."""
