"""Patches torch: an engine applies and undoes patches, rows list what is patched, adapters handle the arguments."""
