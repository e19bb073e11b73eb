"""Programs that we did not write the libraries of: run as their documentation has them, and judged."""
