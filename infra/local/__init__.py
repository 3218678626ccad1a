"""The control plane on one machine: Google's emulators, the real functions and workflows,
stand-ins.
"""
