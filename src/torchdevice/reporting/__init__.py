"""Reports: what was changed, for people and for programs. Sees records only."""
