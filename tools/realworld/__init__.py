"""Programs that we did not write, in every mode that a machine has: `make realworld`."""
