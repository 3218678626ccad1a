"""What Lustrum decides, as functions of values: no I/O and no cloud package."""
