"""Finds code that depends on CUDA by reading source files.

`files` selects and reads files, `visitor` finds constructs, `tables` says how translation treats them, and `limits`
reads in a child process with limits on memory and time.
"""
