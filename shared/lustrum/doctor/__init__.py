"""Checks of a project before a first run, each with the command that fixes it."""
