"""What people reported of MPS, replayed on a virtual Mac: which reports it tells in the same words, and which run."""
