"""torch's own distributed tests on what stands for NCCL: `make distributed`."""
