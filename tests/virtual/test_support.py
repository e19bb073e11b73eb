"""`support="real"`: only what the real backend has, with its own messages; and the tables that say what that is."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import torchdevice.virtual
from tests.torches import on_pinned_torch
from tests.virtual.harness import on
from torchdevice.virtual import supported


@on("mps:real")
def test_what_mps_lacks_is_refused_in_its_words() -> None:
    x = torch.randn(3, 3, device="mps")
    for missing in (lambda: torch.linalg.eig(x), lambda: torch.special.ndtri(x), lambda: x.mode()):
        with pytest.raises(NotImplementedError, match="is not currently implemented for the MPS device"):
            missing()
    assert set(torchdevice.virtual.denied()) == {"aten::linalg_eig", "aten::special_ndtri", "aten::mode"}
    with pytest.raises(RuntimeError, match="is not implemented for 'Long' on the MPS device"):
        nn.functional.conv2d(
            torch.ones(1, 1, 4, 4, dtype=torch.long).to("mps"), torch.ones(1, 1, 2, 2).long().to("mps")
        )
    with pytest.raises(RuntimeError, match="is not implemented for 'Int' on the MPS device"):
        nn.functional.linear(torch.ones(2, 2, dtype=torch.int32, device="mps"), torch.ones(2, 2).int().to("mps"))


@on("mps:real")
def test_what_mps_has_works() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.Softmax(1))
    optim = torch.optim.AdamW(net.to("mps").parameters())
    x = torch.randn(2, 1, 5, 5, device="mps")
    net(x).square().sum().backward()
    optim.step()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to("mps")
    y = torch.randn(2, 3, 8, device="mps")
    attention(y, y, y)[0].sum().backward()
    nn.LSTM(3, 4).to("mps")(torch.randn(2, 1, 3, device="mps"))[0].sum().backward()
    assert torchdevice.virtual.denied() == {}


@on("mps:real", env={"PYTORCH_ENABLE_MPS_FALLBACK": "1"})
def test_the_fallback_runs_and_warns_once() -> None:
    x = torch.randn(3, 3, device="mps")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert torch.linalg.eig(x).eigenvalues.device.type == "mps"
            x.mode()
            assert torch.logspace(0, 1, 2, device="mps").tolist() == [1.0, 10.0]  # an out= form inside
            out = torch.empty(0, device="mps")
            assert torch.take(x, torch.tensor([0], device="mps"), out=out).tolist() == [x[0, 0].item()]
    assert len([w for w in caught if "will fall back to run on the CPU" in str(w.message)]) == 1


def test_the_tables_come_from_torch() -> None:
    mps, cuda = supported.listed("MPS"), supported.listed("CUDA")
    assert {"add.Tensor", "mm", "_linalg_svd"} <= mps
    assert "linalg_eig" in cuda
    assert "linalg_eig" not in mps
    assert not supported.needs_device_check("add.Tensor")
    assert supported.needs_device_check("mm")
    assert "int64" in supported.denied_dtypes()["_convolution"]
    assert "float16" not in supported.denied_dtypes()["_convolution"]
    assert supported.refusal_of("_convolution", "MPS", real=False) == supported.refusal_of("mm", "XPU", real=True)
    assert supported.refusal_of("addmm_.out", "CUDA", real=False).kernel == "addmm_cuda"


def test_refusals_agree_with_torchs_own_list() -> None:
    """Operators that common_mps.py calls unimplemented have no MPS kernel in native_functions.yaml."""
    unimplemented = [n for n, dtypes in supported.mps_lists()["UNIMPLEMENTED_XFAILLIST"].items() if dtypes is None]
    assert len(unimplemented) > (40 if on_pinned_torch() else 30)  # newer versions lack less
    mps = supported.listed("MPS")
    present = {name for name in unimplemented if name in mps}
    assert present <= {"put", "to"}, present
