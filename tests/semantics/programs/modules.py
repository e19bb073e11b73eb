"""Layers of all kinds, forward and backward, with weights that do not depend on random numbers."""

import torch
from torch import nn
from torch.nn.utils import prune


def _filled(m, d):
    m = m.to(d)
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), device=d, dtype=torch.float32) + i).view_as(p) * 0.5)
    return m


def _input(d, *shape):
    n = 1
    for each in shape:
        n *= each
    return torch.cos(torch.arange(n, device=d, dtype=torch.float32)).view(shape).requires_grad_()


def _flat(value):
    if isinstance(value, torch.Tensor):
        return [list(value.shape), value.flatten()[:6].tolist(), value.float().sum().item()]
    return [_flat(each) for each in value if each is not None]


def _layer(make, *shape):
    def program(d):
        m, x = _filled(make(), d), _input(d, *shape)
        out = m(x)
        first = out if isinstance(out, torch.Tensor) else out[0]
        (first * first).sum().backward()
        return [_flat(out), _flat(x.grad), [p.grad.sum().item() for p in m.parameters() if p.grad is not None]]

    return program


ROWS = {
    "linear": _layer(lambda: nn.Linear(4, 3), 2, 4),
    "bilinear": lambda d: _flat(_filled(nn.Bilinear(2, 3, 2), d)(_input(d, 4, 2), _input(d, 4, 3))),
    "conv1d": _layer(lambda: nn.Conv1d(2, 3, 3, padding=1), 2, 2, 6),
    "conv2d": _layer(lambda: nn.Conv2d(2, 3, 3, padding=1), 1, 2, 5, 5),
    "conv2d_strided": _layer(lambda: nn.Conv2d(2, 4, 3, stride=2, dilation=2, groups=2), 1, 2, 8, 8),
    "conv2d_reflect": _layer(lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), 1, 1, 4, 4),
    "conv2d_same": _layer(lambda: nn.Conv2d(1, 2, 3, padding="same", bias=False), 1, 1, 4, 4),
    "conv3d": _layer(lambda: nn.Conv3d(1, 2, 2), 1, 1, 3, 3, 3),
    "conv_transpose1d": _layer(lambda: nn.ConvTranspose1d(2, 1, 3, stride=2), 1, 2, 4),
    "conv_transpose2d": _layer(lambda: nn.ConvTranspose2d(2, 1, 3, stride=2, output_padding=1), 1, 2, 3, 3),
    "max_pool1d": _layer(lambda: nn.MaxPool1d(2), 1, 2, 6),
    "max_pool2d": _layer(lambda: nn.MaxPool2d(2, 2), 1, 2, 4, 4),
    "max_pool2d_indices": _layer(lambda: nn.MaxPool2d(2, return_indices=True), 1, 1, 4, 4),
    "avg_pool2d": _layer(lambda: nn.AvgPool2d(2, padding=1, count_include_pad=False), 1, 2, 4, 4),
    "avg_pool3d": _layer(lambda: nn.AvgPool3d(2), 1, 1, 4, 4, 4),
    "adaptive_avg_pool2d": _layer(lambda: nn.AdaptiveAvgPool2d((2, 1)), 1, 2, 4, 4),
    "adaptive_max_pool2d": _layer(lambda: nn.AdaptiveMaxPool2d(2), 1, 1, 4, 4),
    "lp_pool2d": _layer(lambda: nn.LPPool2d(2, 2), 1, 1, 4, 4),
    "batch_norm1d": _layer(lambda: nn.BatchNorm1d(3), 4, 3),
    "batch_norm2d": _layer(lambda: nn.BatchNorm2d(2), 2, 2, 3, 3),
    "group_norm": _layer(lambda: nn.GroupNorm(2, 4), 2, 4, 3),
    "instance_norm": _layer(lambda: nn.InstanceNorm2d(2, affine=True), 1, 2, 3, 3),
    "layer_norm": _layer(lambda: nn.LayerNorm(4), 2, 4),
    "rms_norm": _layer(lambda: nn.RMSNorm(4), 2, 4),
    "local_response_norm": _layer(lambda: nn.LocalResponseNorm(2), 1, 3, 2, 2),
    "rnn": _layer(lambda: nn.RNN(3, 4, batch_first=True), 2, 5, 3),
    "lstm": _layer(lambda: nn.LSTM(3, 4, num_layers=2), 5, 2, 3),
    "lstm_bidirectional": _layer(lambda: nn.LSTM(3, 2, bidirectional=True, batch_first=True), 2, 4, 3),
    "lstm_projected": _layer(lambda: nn.LSTM(3, 4, proj_size=2), 5, 2, 3),
    "gru": _layer(lambda: nn.GRU(3, 4), 5, 2, 3),
    "lstm_cell": _layer(lambda: nn.LSTMCell(3, 2), 2, 3),
    "gru_cell": _layer(lambda: nn.GRUCell(3, 2), 2, 3),
    "relu6": _layer(nn.ReLU6, 2, 4),
    "gelu": _layer(nn.GELU, 2, 4),
    "gelu_tanh": _layer(lambda: nn.GELU("tanh"), 2, 4),
    "silu_mish": _layer(lambda: nn.Sequential(nn.SiLU(), nn.Mish()), 2, 4),
    "elu_selu_celu": _layer(lambda: nn.Sequential(nn.ELU(), nn.SELU(), nn.CELU()), 2, 4),
    "prelu": _layer(lambda: nn.PReLU(4), 2, 4),
    "leaky_relu": _layer(lambda: nn.LeakyReLU(0.2), 2, 4),
    "softplus_softsign": _layer(lambda: nn.Sequential(nn.Softplus(), nn.Softsign()), 2, 4),
    "hard_functions": _layer(lambda: nn.Sequential(nn.Hardswish(), nn.Hardtanh(), nn.Hardsigmoid()), 2, 4),
    "shrinks": _layer(lambda: nn.Sequential(nn.Tanhshrink(), nn.Softshrink(0.01), nn.Hardshrink(0.01)), 2, 4),
    "glu": _layer(lambda: nn.GLU(), 2, 4),
    "softmax_family": _layer(lambda: nn.Sequential(nn.Softmax(-1), nn.LogSoftmax(-1), nn.Softmin(-1)), 2, 4),
    "threshold": _layer(lambda: nn.Threshold(0.1, 2.0), 2, 4),
    "pixel_shuffle": _layer(lambda: nn.PixelShuffle(2), 1, 4, 2, 2),
    "pixel_unshuffle": _layer(lambda: nn.PixelUnshuffle(2), 1, 1, 4, 4),
    "upsample_nearest": _layer(lambda: nn.Upsample(scale_factor=2), 1, 1, 2, 2),
    "upsample_bilinear": _layer(lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), 1, 1, 3, 3),
    "upsample_bicubic": _layer(lambda: nn.Upsample(size=5, mode="bicubic"), 1, 1, 3, 3),
    "reflection_pad": _layer(lambda: nn.ReflectionPad2d(1), 1, 1, 3, 3),
    "replication_pad": _layer(lambda: nn.ReplicationPad2d((1, 2, 0, 1)), 1, 1, 3, 3),
    "circular_pad": _layer(lambda: nn.CircularPad2d(1), 1, 1, 3, 3),
    "zero_pad": _layer(lambda: nn.ZeroPad2d((1, -1, 0, 2)), 1, 1, 3, 3),
    "fold_unfold": _layer(lambda: nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), 1, 1, 4, 4),
    "flatten_unflatten": _layer(lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 2))), 3, 2, 2),
    "channel_shuffle": _layer(lambda: nn.ChannelShuffle(2), 1, 4, 2, 2),
    "transformer_layer": _layer(lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2, 3, 4),
    "spectral_norm": lambda d: [
        list(nn.utils.parametrizations.spectral_norm(_filled(nn.Linear(3, 3), d)).weight.shape),
    ],
    "weight_norm": _layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), 2, 3),
}


def embedding(d):
    e = _filled(nn.Embedding(5, 3, padding_idx=0), d)
    e(torch.tensor([[0, 1], [1, 4]], device=d)).sum().backward()
    return [e.weight.grad.tolist(), e(torch.tensor([2], device=d)).tolist()]


def embedding_bag(d):
    e = _filled(nn.EmbeddingBag(6, 2, mode="mean"), d)
    out = e(torch.tensor([1, 2, 4, 5, 4], device=d), torch.tensor([0, 3], device=d))
    out.sum().backward()
    return [out.tolist(), e.weight.grad.tolist()]


def attention(d):
    m = _filled(nn.MultiheadAttention(4, 2, batch_first=True), d)
    x = _input(d, 2, 3, 4)
    out, weights = m(x, x, x, key_padding_mask=torch.tensor([[False, False, True], [False] * 3], device=d))
    out.sum().backward()
    return [_flat(out), weights.tolist(), _flat(x.grad)]


def scaled_dot_product_attention(d):
    q, k, v = _input(d, 1, 2, 3, 4), _input(d, 1, 2, 3, 4), _input(d, 1, 2, 3, 4)
    causal = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.ones(3, 3, dtype=torch.bool, device=d).tril()
    masked = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    causal.sum().backward()
    return [_flat(causal), torch.allclose(causal, masked, atol=1e-6), _flat(v.grad)]


def a_transformer(d):
    m = _filled(nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True), d)
    return _flat(m(_input(d, 1, 3, 4), _input(d, 1, 2, 4)))


def an_encoder_in_evaluation(d):
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    m = _filled(nn.TransformerEncoder(layer, 2), d).eval()
    with torch.no_grad():
        return _flat(
            m(_input(d, 2, 3, 4), src_key_padding_mask=torch.tensor([[False] * 3, [False, True, True]], device=d))
        )


def packed_sequences(d):
    x = _input(d, 2, 4, 3)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]).cpu(), batch_first=True)
    out, h = _filled(nn.GRU(3, 2, batch_first=True), d)(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    return [_flat(padded), lengths.tolist(), _flat(h)]


def packed_sequences_with_lengths_in_a_list(d):
    packed = nn.utils.rnn.pack_padded_sequence(_input(d, 2, 3, 1), [1, 3], batch_first=True, enforce_sorted=False)
    return [packed.batch_sizes.tolist(), packed.data.tolist(), packed.sorted_indices.tolist()]


def padded_sequences(d):
    parts = [torch.ones(2, device=d), torch.ones(3, device=d)]
    return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-1).tolist()


def running_statistics(d):
    m = nn.BatchNorm1d(2, momentum=0.5).to(d)
    m(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device=d))
    trained = [m.running_mean.tolist(), m.running_var.tolist(), m.num_batches_tracked.item()]
    return [trained, m.eval()(torch.zeros(1, 2, device=d)).tolist()]


def sync_batch_norm_is_converted(d):
    m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2))).to(d)
    return [type(m[0]).__name__, m.eval()(torch.ones(1, 2, device=d)).tolist()]


def dropout_in_evaluation(d):
    return nn.Dropout(0.9).to(d).eval()(torch.ones(3, device=d)).tolist()


def a_lazy_layer(d):
    m = nn.LazyLinear(2).to(d)
    m(torch.ones(3, 5, device=d))
    return [type(m).__name__, list(m.weight.shape), m.weight.device.type == torch.device(d).type]


def containers(d):
    m = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.Linear(2, 1), nn.Identity()])}).to(d)
    p = nn.ParameterList([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))]).to(d)
    return [[n for n, _ in m.named_parameters()], len(p), [q.device == m["a"].weight.device for q in p]]


def grid_sample(d):
    grid = nn.functional.affine_grid(torch.tensor([[[1.0, 0.2, 0.0], [0.0, 1.0, 0.1]]], device=d), (1, 1, 3, 3), False)
    return nn.functional.grid_sample(_input(d, 1, 1, 3, 3), grid, align_corners=False).tolist()


def interpolate(d):
    x = _input(d, 1, 1, 4, 4)
    f = nn.functional.interpolate
    return [f(x, scale_factor=0.5, mode="area").tolist(), f(x, (3, 3), mode="bilinear", antialias=True).tolist()]


def pad_modes(d):
    x = torch.arange(4.0, device=d).view(1, 1, 4)
    pad = nn.functional.pad
    return [pad(x, (1, 2), mode).tolist() for mode in ("constant", "reflect", "replicate", "circular")]


def one_hot(d):
    return nn.functional.one_hot(torch.tensor([0, 2], device=d), 3).tolist()


def normalize_and_distances(d):
    x, y = _input(d, 2, 3), _input(d, 2, 3) * 2
    f = nn.functional
    return [
        f.normalize(x).tolist(),
        f.cosine_similarity(x, y).tolist(),
        f.pairwise_distance(x, y).tolist(),
        torch.cdist(x, y).tolist(),
    ]


def max_unpool(d):
    x = _input(d, 1, 1, 4, 4)
    out, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
    return nn.functional.max_unpool2d(out, indices, 2).tolist()


def vectors_of_parameters(d):
    m = _filled(nn.Linear(2, 2), d)
    vector = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(vector * 0 + 3, m.parameters())
    return [vector.tolist(), m.weight.tolist()]


def pruning(d):
    m = _filled(nn.Linear(4, 1), d)
    prune.l1_unstructured(m, "weight", 0.5)
    return [m.weight_mask.tolist(), int((m.weight == 0).sum()), m.weight_mask.device == m.weight.device]


def parametrizations(d):
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    m = _filled(nn.Linear(3, 3), d)
    nn.utils.parametrize.register_parametrization(m, "weight", Symmetric())
    return torch.equal(m.weight, m.weight.mT)


def an_orthogonal_parametrization(d):
    m = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)).to(d)
    return torch.allclose(m.weight @ m.weight.T, torch.eye(3, device=d), atol=1e-5)


def fused_conv_and_norm(d):
    conv, norm = _filled(nn.Conv2d(1, 2, 2), d).eval(), _filled(nn.BatchNorm2d(2), d).eval()
    x = _input(d, 1, 1, 3, 3)
    return torch.allclose(nn.utils.fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-5)


def data_parallel_with_one_device(d):
    m = _filled(nn.Linear(2, 1), d)
    return nn.DataParallel(m)(torch.ones(3, 2, device=d)).tolist()


def modules_made_on_the_device(d):
    made = [nn.Linear(2, 2, device=d), nn.Conv2d(1, 1, 1, device=d), nn.LSTM(2, 2, device=d), nn.LayerNorm(2, device=d)]
    return [next(m.parameters()).device.type == torch.device(d).type for m in made]


def half_and_bfloat16_modules(d):
    m = _filled(nn.Linear(2, 2), d)
    return [str(m.half().weight.dtype), str(m.bfloat16().bias.dtype), str(m.float().weight.dtype)]


def to_with_a_memory_format(d):
    m = nn.Conv2d(2, 2, 3).to(d, memory_format=torch.channels_last)
    return m.weight.is_contiguous(memory_format=torch.channels_last)


def requires_grad_and_freezing(d):
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).to(d)
    m[0].requires_grad_(False)
    m(torch.ones(1, 2, device=d)).sum().backward()
    return [[p.grad is None for p in m.parameters()], sum(p.numel() for p in m.parameters() if p.requires_grad)]


def initialisations(d):
    w = torch.empty(2, 3, device=d)
    init = nn.init
    made = [init.zeros_(w), init.ones_(w), init.constant_(w, 3.0), init.eye_(w)]
    return [w.tolist(), all(m is w for m in made), init.calculate_gain("relu")]
