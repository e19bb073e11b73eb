"""Finds what binds source code to CUDA, by reading it: `files` (which), `tables` (what is known), `visitor` (where)."""
