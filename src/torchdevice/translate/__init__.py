"""Patching: an engine that applies and undoes, rows that say what is patched, and one adapter per argument shape."""
