"""Names that both sides of the supervisor's zip use: the core imports them from here."""

LUSTRE_MOUNT = "/lustre"
MODEL_CACHE = "cache/huggingface"  # below the mount; HF_HOME of every job
EVENT_PREFIX = "LUSTRUM "  # of a line that holds an event as JSON
