"""Which names of packages that need CUDA public code imports: a counter, its data, and why some have no stand-in."""
