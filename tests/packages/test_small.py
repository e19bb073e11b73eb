"""sageattention and fast_hadamard_transform against math in float64, forward and gradient."""

from __future__ import annotations

import pytest
import torch

from tests.packages import exact
from tests.packages.test_flash_attn import check, tensors
from torchdevice.errors import CudaOnlyError
from torchdevice.packages import fast_hadamard_transform, sageattention


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("scale", [None, 0.2])
def test_attention_in_both_layouts(causal: bool, heads: int, scale: float | None) -> None:
    q, k, v = tensors((2, 5, 4, 8), (2, 5, heads, 8), (2, 5, heads, 8))
    expected, sums = exact.attention(q, k, v, causal=causal, scale=scale)
    asked = {"is_causal": causal, "sm_scale": scale}
    out, lse = sageattention.sageattn(q, k, v, "NHD", return_lse=True, **asked)
    check(out, expected, [q, k, v])
    torch.testing.assert_close(lse.double(), sums, atol=1e-5, rtol=1e-5)
    heads_first = sageattention.sageattn(*(each.transpose(1, 2) for each in (q, k, v)), **asked)
    torch.testing.assert_close(heads_first.transpose(1, 2), expected)
    with pytest.raises(CudaOnlyError, match="attn_mask"):
        sageattention.sageattn(q, k, v, attn_mask=q)


@pytest.mark.parametrize("width", [1, 2, 8, 6])
def test_products_with_hadamards_matrix(width: int) -> None:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < width:
        matrix = torch.cat((torch.cat((matrix, matrix), dim=1), torch.cat((matrix, -matrix), dim=1)))
    (x,) = tensors((3, width))
    check(fast_hadamard_transform.hadamard_transform(x, 0.5), 0.5 * x @ matrix[:width, :width], [x])
