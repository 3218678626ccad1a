"""Event-driven RL training on Google Cloud that leaves nothing behind."""

# The one place of the version: the build, the command, records, reports and notifications read it
# here, and a staged function has it without being installed.
__version__ = "0.1.0"
