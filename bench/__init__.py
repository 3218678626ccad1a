"""What is fast and what it costs, measured: ratios against a peer or a baseline in the same run."""


class Unavailable(Exception):
    """A benchmark needs what this machine does not have; the message says what."""
