"""A DataLoader with worker processes and pinned memory.

torchdevice run examples/dataloader.py
"""

import os

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Squares(Dataset[tuple[torch.Tensor, int]]):
    """Numbers with their squares; each sample contains the id of the process that created it."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        assert get_worker_info() is not None
        return torch.tensor([float(index), float(index) ** 2]), os.getpid()


if __name__ == "__main__":
    loader = DataLoader(
        Squares(), batch_size=16, num_workers=2, pin_memory=True, shuffle=True, generator=torch.Generator()
    )
    total, workers = torch.zeros(2, device="cuda"), set()
    for batch, processes in loader:
        total += batch.cuda(non_blocking=True).sum(0)
        workers |= set(processes.tolist())
    print(f"sum {total[0]:.0f}, sum of squares {total[1]:.0f}, from {len(workers)} worker processes")
    print("the main process made none:", os.getpid() not in workers)
