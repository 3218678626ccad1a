"""Fakes of everything at the rim, in virtual time: small, honest, no wall clock."""
