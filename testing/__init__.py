"""A project over time without a cloud: fakes, whole lives in virtual time, faults, a real cluster.

Used by the tests, the simulation and the benchmarks; imports no test.
"""
