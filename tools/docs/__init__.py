"""Pages that are printed from tables of the code: `make docs`."""
