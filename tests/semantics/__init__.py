"""Small programs written for CUDA, run in every mode, with plain torch on the CPU as the judge.

programs/   the programs, one file per subject
program     what a program may say of itself: a value written down, a tolerance
runner      runs all programs in one process and writes what they returned
judging     compares two such files
known       programs that differ, each with its reason
"""
