"""Finds what binds source code to CUDA, by reading it: `files` (which), `tables` (what is known), `visitor` (where).

`limits` reads in a child that may take only so much memory and time.
"""
