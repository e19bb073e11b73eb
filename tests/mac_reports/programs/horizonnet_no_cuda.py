import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no_cuda", action="store_true")
options = parser.parse_args([])
device = torch.device("cpu" if options.no_cuda else "cuda")
assert torch.ones(2, 2, device=device).sum().item() == 4
