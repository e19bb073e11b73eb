import torch

library = torch.library.Library("mac_report_sparse", "DEF")
library.define("diag_mask(Tensor row, Tensor col) -> Tensor")


def diag_mask(row, col):
    assert row.device.type == "cpu", "row.device().is_cpu() INTERNAL ASSERT FAILED"
    return row != col


library.impl("diag_mask", diag_mask, "CPU")
row, col = torch.tensor([0, 1, 2], device="mps"), torch.tensor([0, 2, 2], device="mps")
assert torch.ops.mac_report_sparse.diag_mask(row, col).tolist() == [False, True, False]
