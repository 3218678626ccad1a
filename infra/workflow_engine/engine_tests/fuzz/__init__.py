"""Workflows made from the language's grammar, run to their end: no internal error, no hang."""
