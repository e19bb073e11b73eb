"""Fuzzing, soaking and sanitizers: what takes too long for `make test`, and the record of its figures."""
