"""A CUDA graph: one step is captured, then replayed with new inputs in the same memory.

torchdevice run examples/graphs.py
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4).cuda().eval()
batches = torch.randn(5, 32, 8).cuda()

static_input = torch.zeros(32, 8, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.no_grad(), torch.cuda.stream(side):
    model(static_input)  # warm-up, which CUDA requires before a capture
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    static_output = model(static_input)

same = 0
for batch in batches:
    static_input.copy_(batch)
    graph.replay()
    same += torch.allclose(static_output, model(batch))
print(f"{same} of {len(batches)} replays equal the model")
