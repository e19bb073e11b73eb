"""Run PyTorch code written for one accelerator on the one that is there."""
