"""Memory: the allocated bytes, the peak, and a batch that is halved until it fits.

torchdevice run examples/memory.py
TORCHDEVICE_VIRTUAL_MEMORY=64MiB torchdevice run --virtual cuda examples/memory.py      a device of 64 MiB
"""

import torch

weights = torch.zeros(1024, 1024, device="cuda")
held = torch.cuda.memory_allocated()


def step(batch_size: int) -> float:
    """Two activations of 8 KiB per sample."""
    first = torch.ones(batch_size, 1024, device="cuda") @ weights
    return (first + 1).sum().item() / batch_size


batch_size = 8192
while True:
    try:
        torch.cuda.reset_peak_memory_stats()
        result = step(batch_size)
        break
    except torch.cuda.OutOfMemoryError:
        batch_size //= 2
        torch.cuda.empty_cache()

free, total = torch.cuda.mem_get_info()
print(f"the weights hold {held / 2**20:.1f} MiB, the peak is {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB")
print(f"batch size {batch_size} fits, each sample gives {result:.0f}, free memory is below the total: {free < total}")
