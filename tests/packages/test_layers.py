"""deepspeed.ops.adam and transformer_engine's layers without float8."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.packages import exact
from tests.packages.test_apex import trained
from tests.packages.test_flash_attn import check, tensors
from tests.packages.test_flash_attn_parts import layer_norm, rms
from torchdevice.errors import CudaOnlyError
from torchdevice.packages import apex, apex_amp, deepspeed
from torchdevice.packages import transformer_engine as te


@pytest.mark.parametrize("decoupled", [True, False])
def test_deepspeeds_adam_is_torchs(decoupled: bool) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    expected = trained(lambda p: kind(p, lr=0.1, weight_decay=0.1))
    for mine in (
        lambda p: deepspeed.FusedAdam(p, lr=0.1, weight_decay=0.1, adam_w_mode=decoupled),
        lambda p: deepspeed.DeepSpeedCPUAdam(p, lr=0.1, weight_decay=0.1, adamw_mode=decoupled),
    ):
        torch.testing.assert_close(trained(mine), expected)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "kept"), [(deepspeed.DeepSpeedCPUAdam, None), (apex.FusedAdam, None), (deepspeed.FusedAdam, "own")]
)
def test_adam_of_half_precision_computes_in_float32(
    kind: Any, kept: str | None, dtype: torch.dtype, decoupled: bool, corrected: bool
) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(8).to(dtype))
    mode = {"adamw_mode" if kind is deepspeed.DeepSpeedCPUAdam else "adam_w_mode": decoupled}
    optimizer = kind([weight], lr=0.01, weight_decay=0.1, bias_correction=corrected, **mode)
    own = dtype if kept else torch.float32
    expected, first, second = weight.detach().clone(), torch.zeros(8, dtype=own), torch.zeros(8, dtype=own)
    for step in range(1, 5):
        slope = (torch.randn(8) * 1e-3).to(dtype)
        weight.grad = slope.clone()
        optimizer.step()
        whole, slope = expected.double(), slope.double()
        if decoupled:
            whole = whole * (1 - 0.01 * 0.1)
        else:
            slope = slope + 0.1 * whole
        one, two = 0.9 * first.double() + 0.1 * slope, 0.999 * second.double() + 0.001 * slope**2
        scale = (1 - 0.9**step, 1 - 0.999**step) if corrected else (1.0, 1.0)
        expected = (whole - 0.01 * (one / scale[0]) / ((two / scale[1]).sqrt() + 1e-8)).to(dtype)
        first, second = one.to(own), two.to(own)
        assert optimizer.state[weight]["exp_avg"].dtype == optimizer.state[weight]["exp_avg_sq"].dtype == own
        torch.testing.assert_close(weight.detach(), expected, atol=0, rtol=0.01 if kept else torch.finfo(dtype).eps)


def test_deepspeeds_adam_for_the_cpu_keeps_narrow_states_if_asked() -> None:
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = deepspeed.DeepSpeedCPUAdam([weight], fp32_optimizer_states=False)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert optimizer.state[weight]["exp_avg"].dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [deepspeed.DeepSpeedCPUAdam, deepspeed.FusedAdam, apex.FusedAdam])
def test_no_fused_adam_has_amsgrad(kind: Any) -> None:
    with pytest.raises(RuntimeError, match="AMSGrad"):
        kind([torch.nn.Parameter(torch.ones(3))], amsgrad=True)


WHERE: dict[str, Any] = {"device": "cpu", "params_dtype": torch.float64}


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("centred", [False, True])
def test_layers_that_normalise_first(kind: str, centred: bool) -> None:
    (x,) = tensors((3, 4))
    layer = te.LayerNormLinear(
        4, 5, normalization=kind, zero_centered_gamma=centred, return_layernorm_output=True, **WHERE
    )
    assert layer.layer_norm_weight.unique().tolist() == [0.0 if centred else 1.0]
    one, zero = torch.ones(4).double(), torch.zeros(4).double()
    normed = layer_norm(x, one, zero, 1e-5) if kind == "LayerNorm" else rms(x, one, 1e-5)
    out, given = layer(x)
    torch.testing.assert_close(given, normed)
    check(out, normed @ layer.weight.T + layer.bias, [x])
    alone = getattr(te, kind)(4, zero_centered_gamma=centred, device="cpu", dtype=torch.float64)
    torch.testing.assert_close(alone(x), normed)


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("gelu", lambda y: F.gelu(y, approximate="tanh")),
        ("relu", F.relu),
        ("srelu", lambda y: F.relu(y) ** 2),
        ("swiglu", lambda y: F.silu(y[:, :6]) * y[:, 6:]),
        ("reglu", lambda y: F.relu(y[:, :6]) * y[:, 6:]),
    ],
)
def test_the_feed_forward_layer(activation: str, formula: Any) -> None:
    (x,) = tensors((3, 4))
    layer = te.LayerNormMLP(4, 6, activation=activation, **WHERE)
    normed = layer_norm(x, torch.ones(4).double(), torch.zeros(4).double(), 1e-5)
    inner = formula(normed @ layer.fc1_weight.T + layer.fc1_bias)
    check(layer(x), inner @ layer.fc2_weight.T + layer.fc2_bias, [x])


def test_attention_with_masks_and_both_layouts() -> None:
    q, k, v = tensors((2, 5, 4, 8), *[(2, 5, 2, 8)] * 2)
    layer = te.DotProductAttention(4, 8, num_gqa_groups=2, attention_dropout=0.0, qkv_format="bshd")
    check(layer(q, k, v), exact.attention(q, k, v, causal=True)[0].flatten(2), [q, k, v])
    turned = [each.transpose(0, 1) for each in (q, k, v)]
    window = layer(*turned, qkv_format="sbhd", attn_mask_type="no_mask", window_size=(1, 1)).transpose(0, 1)
    torch.testing.assert_close(window, exact.attention(q, k, v, window=(1, 1))[0].flatten(2))
    hidden = torch.zeros(2, 1, 1, 5, dtype=torch.bool)
    hidden[1, ..., 3:] = True
    padded = layer(q, k, v, attention_mask=hidden, attn_mask_type="padding")
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
    torch.testing.assert_close(padded, exact.attention(q, k, v, bias=bias)[0].flatten(2))


DOT: tuple[Any, ...] = (te.DotProductAttention, 4, 8)
REFUSED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((te.Linear, 4, 3), {"return_bias": True}),
    ((te.Linear, 4, 3), {"init_method": torch.nn.init.ones_}),
    ((te.LayerNormLinear, 4, 3), {"parameters_split": ("q", "k")}),
    ((te.LayerNormMLP, 4, 3), {"return_bias": True}),
    (DOT, {"tp_size": 2}),
    (DOT, {"softmax_type": "learnable"}),
    ((apex.SyncBatchNorm, 3), {"channel_last": True}),
    ((apex.convert_syncbn_model, torch.nn.ReLU()), {"channel_last": True}),
    ((apex.DistributedDataParallel, torch.nn.ReLU()), {"gradient_average": False}),
    ((apex.FusedSGD, [torch.zeros(1)]), {"wd_after_momentum": True}),
    ((apex.FusedAdagrad, [torch.zeros(1)]), {"adagrad_w_mode": True}),
    ((apex.FusedAdam, [torch.zeros(1).half()]), {"master_weights": True}),
    ((apex_amp.initialize, torch.nn.ReLU()), {"cast_model_outputs": torch.float16}),
    ((apex_amp.initialize, torch.nn.ReLU()), {"max_loss_scale": 8.0}),
]


@pytest.mark.parametrize(
    ("call", "asked"), REFUSED, ids=[f"{call[0].__name__} {min(asked)}" for call, asked in REFUSED]
)
def test_what_would_change_a_result_and_is_not_here_is_refused(call: tuple[Any, ...], asked: dict[str, Any]) -> None:
    """Nobody gets another result than the package's because an argument was passed over."""
    function, *given = call
    with pytest.raises(CudaOnlyError, match=rf"called with {next(iter(asked))}[^\0]*\nHint: call it without"):
        function(*given, **asked)


def test_attention_refuses_what_it_would_pass_over() -> None:
    q, k, v = tensors((2, 5, 4, 8), *[(2, 5, 4, 8)] * 2)
    layer = te.DotProductAttention(4, 8, tp_size=1, layer_number=3, softmax_type="vanilla", attention_dropout=0.0)
    layer(
        q, k, v, checkpoint_core_attention=True, core_attention_bias_type="no_bias", max_seqlen_q=5, alibi_slopes=None
    )
    for option in ("alibi_slopes", "core_attention_bias", "cu_seqlens_q"):
        with pytest.raises(CudaOnlyError, match=f"called with {option}"):
            layer(q, k, v, **{option: torch.ones(4)})


def test_hints_to_nvidias_kernels_change_nothing() -> None:
    layer = te.Linear(4, 3, ub_name="qkv", ub_overlap_ag=True, sequence_parallel=False, tp_size=1, **WHERE)
    (x,) = tensors((2, 4))
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))


def test_float8_says_no() -> None:
    linear = te.Linear(4, 3, **WHERE)
    (x,) = tensors((2, 4))
    with te.fp8_autocast(enabled=False):
        torch.testing.assert_close(linear(x, is_first_microbatch=True), F.linear(x, linear.weight, linear.bias))
    for asked in (te.fp8_autocast, te.fp8_model_init):
        with pytest.raises(NotImplementedError, match=r"was asked for float8;[^\0]*\nHint:"):
            asked(enabled=True, fp8_recipe=te.DelayedScaling(fp8_format=te.Format.HYBRID))
