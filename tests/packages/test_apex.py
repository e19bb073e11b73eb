"""apex by torch's own: layers, optimizers against their formulas, mixed precision and its scale."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.packages.test_flash_attn import tensors
from tests.packages.test_flash_attn_parts import layer_norm, rms
from torchdevice.errors import CudaOnlyError
from torchdevice.packages import apex, apex_amp, apex_half


def test_normalisations_take_weights_of_another_dtype() -> None:
    (x,) = (each.detach() for each in tensors((3, 2, 8)))
    layer = apex.FusedLayerNorm(8)
    assert isinstance(layer, nn.LayerNorm)
    out = layer(x.bfloat16())
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), layer_norm(x, torch.ones(8), torch.zeros(8), 1e-5), atol=3e-2, rtol=3e-2)
    assert apex.MixedFusedLayerNorm(8)(x.bfloat16()).dtype is torch.float32
    assert apex.MixedFusedRMSNorm(8)(x.bfloat16()).dtype is torch.float32
    weight, bias = torch.rand(2, 8).double(), torch.rand(2, 8).double()
    torch.testing.assert_close(
        apex.fused_layer_norm_affine(x, weight, bias, (2, 8), 1e-5), F.layer_norm(x, (2, 8), weight, bias)
    )
    torch.testing.assert_close(apex.fused_layer_norm(x, 8, 1e-5), F.layer_norm(x, (8,)))
    torch.testing.assert_close(apex.fused_rms_norm_affine(x, weight[0], 8, 1e-5), rms(x, weight[0], 1e-5))
    torch.testing.assert_close(apex.FusedRMSNorm(8, elementwise_affine=False)(x), apex.fused_rms_norm(x, 8, 1e-5))


def trained(make: Any, steps: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4).double() * (step + 1)).square().sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("decoupled", [True, False])
def test_fused_adam_is_torchs(decoupled: bool) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    mine = trained(lambda p: apex.FusedAdam(p, lr=0.1, weight_decay=0.1, adam_w_mode=decoupled))
    torch.testing.assert_close(mine, trained(lambda p: kind(p, lr=0.1, weight_decay=0.1)))


@pytest.mark.parametrize("decoupled", [True, False])
def test_without_bias_correction_moments_are_taken_as_they_are(decoupled: bool) -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        @torch.no_grad()
        def step(self) -> None:
            for p in self.param_groups[0]["params"]:
                state = self.state.setdefault(p, {"m": torch.zeros_like(p), "v": torch.zeros_like(p)})
                grad = p.grad if decoupled else p.grad + 0.1 * p
                state["m"] = 0.9 * state["m"] + 0.1 * grad
                state["v"] = 0.999 * state["v"] + 0.001 * grad**2
                update = state["m"] / (state["v"].sqrt() + 1e-8) + (0.1 * p if decoupled else 0)
                p -= 0.01 * update

    given = {"lr": 0.01, "weight_decay": 0.1, "bias_correction": False, "adam_w_mode": decoupled}
    torch.testing.assert_close(trained(lambda p: apex.FusedAdam(p, **given)), trained(Plain))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("always", [False, True])
def test_lamb_moves_each_parameter_by_its_own_length(decay: float, always: bool) -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})
            self.number = 0

        @torch.no_grad()
        def step(self) -> None:
            self.number += 1
            params = self.param_groups[0]["params"]
            whole = torch.cat([p.grad.flatten() for p in params]).norm()
            for p in params:
                state = self.state.setdefault(p, {"m": torch.zeros_like(p), "v": torch.zeros_like(p)})
                grad = p.grad / max(1.0, whole.item() / 1.0)
                state["m"] = 0.9 * state["m"] + 0.1 * grad
                state["v"] = 0.999 * state["v"] + 0.001 * grad**2
                m, v = state["m"] / (1 - 0.9**self.number), state["v"] / (1 - 0.999**self.number)
                update = m / (v.sqrt() + 1e-6) + decay * p
                p -= 0.01 * update * (p.norm() / update.norm() if decay or always else 1.0)

    mine = trained(lambda p: apex.FusedLAMB(p, lr=0.01, weight_decay=decay, use_nvlamb=always))
    torch.testing.assert_close(mine, trained(Plain), atol=1e-5, rtol=1e-5)


def test_sgd_and_adagrad_are_torchs() -> None:
    given = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    torch.testing.assert_close(
        trained(lambda p: apex.FusedSGD(p, **given)), trained(lambda p: torch.optim.SGD(p, **given))
    )
    torch.testing.assert_close(trained(lambda p: apex.FusedAdagrad(p)), trained(lambda p: torch.optim.Adagrad(p)))


def test_batch_norm_without_a_process_group_is_the_plain_one() -> None:
    model = apex.convert_syncbn_model(nn.Sequential(nn.BatchNorm1d(3)))
    assert isinstance(model[0], nn.SyncBatchNorm)
    mine, plain = apex.SyncBatchNorm(3), nn.BatchNorm1d(3)
    for training in (True, False):
        mine.train(training)
        plain.train(training)
        x = torch.randn(5, 3)
        torch.testing.assert_close(mine(x), plain(x))


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_mixed_precision_trains(level: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = apex_amp.initialize(model, optimizer, opt_level=level, loss_scale=128.0)
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    before = model.weight.detach().float().clone()
    with apex_amp.scale_loss(model(torch.ones(3, 4)).sum(), optimizer) as scaled:
        scaled.backward()
    torch.testing.assert_close(model.weight.grad.float(), torch.full((1, 4), 3.0))
    optimizer.step()
    torch.testing.assert_close(model.weight.float(), before - 0.3, atol=2e-3, rtol=2e-3)
    assert seen == [torch.float32 if level in ("O0", "O2") else torch.float16]


def test_gradients_that_are_not_finite_skip_a_step_and_halve_the_scale() -> None:
    parameter = nn.Parameter(torch.ones(1))
    _, optimizer = apex_amp.initialize(nn.Linear(1, 1), torch.optim.SGD([parameter], lr=1.0))
    before = apex_amp.state_dict()["loss_scaler0"]["loss_scale"]
    with apex_amp.scale_loss((parameter * torch.inf).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert parameter.item() == 1.0
    assert apex_amp.state_dict()["loss_scaler0"]["loss_scale"] == before / 2
    optimizer.zero_grad()
    for _ in range(2):  # gradients add up over two losses
        with apex_amp.scale_loss(parameter.sum(), optimizer) as scaled:
            scaled.backward()
    assert parameter.grad is not None
    assert parameter.grad.item() == 2.0
    optimizer.step()
    assert parameter.item() == -1.0
    saved = apex_amp.state_dict()
    apex_amp.initialize(nn.Linear(1, 1))
    apex_amp.load_state_dict(saved)
    assert apex_amp.state_dict() == saved


def test_networks_in_half_precision_keep_their_batch_norms() -> None:
    network = apex_half.network_to_half(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    assert [each.dtype for each in network.parameters()] == [torch.float16] * 2 + [torch.float32] * 2
    assert network[0](torch.ones(2)).dtype == torch.float16
    own, master = apex_half.prep_param_lists(network)
    own[0].grad = torch.full_like(own[0], 0.5)
    apex_half.model_grads_to_master_grads(own, master)
    torch.optim.SGD(master, lr=1.0).step()
    expected = (master[0].detach()).half()
    apex_half.master_params_to_model_params(own, master)
    assert master[0].dtype == torch.float32
    torch.testing.assert_close(own[0].detach(), expected)
    assert not apex_half.multi_tensor_applier.available
    with pytest.raises(CudaOnlyError, match="no compiled module"):
        apex_half.multi_tensor_applier(torch.add, None, [])


@pytest.mark.parametrize("clip", [True, False])
def test_larc_gives_each_parameter_a_rate_of_its_own(clip: bool) -> None:
    weights = [torch.nn.Parameter(torch.tensor([3.0, 4.0])), torch.nn.Parameter(torch.zeros(2))]
    optimizer = apex_half.LARC(torch.optim.SGD(weights, lr=0.1, weight_decay=0.2), trust_coefficient=0.3, clip=clip)
    for weight in weights:
        weight.grad = torch.tensor([0.0, 2.0])
    optimizer.step()
    rate = 0.3 * 5 / (2 + 5 * 0.2 + 1e-8)
    rate = min(rate / 0.1, 1) if clip else rate
    expected = torch.tensor([3.0, 4.0]) - 0.1 * rate * (torch.tensor([0.0, 2.0]) + 0.2 * torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(weights[0].detach(), expected)
    torch.testing.assert_close(weights[1].detach(), torch.tensor([0.0, -0.2]))
    assert optimizer.param_groups[0]["weight_decay"] == 0.2
    optimizer.zero_grad()
    assert weights[0].grad is None


def test_one_process_is_one_group_of_batch_norms() -> None:
    assert apex.create_syncbn_process_group(0) is None
    assert apex.create_syncbn_process_group(1) is None
    with pytest.raises(ValueError, match="groups of 2"):
        apex.create_syncbn_process_group(2)
