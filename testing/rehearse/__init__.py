"""The rehearsal: a run's infrastructure made and destroyed by the tools that make the real one."""
