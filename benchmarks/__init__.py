"""Development side of the benchmarks: the run on a real GPU, the recorded results, and the documents made of them."""
