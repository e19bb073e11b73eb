"""The same in MLX: pairs of expressions that give the same values. Imports no MLX; `make catalog` and a test run each pair.

Both sides are written over the same names: `x`, `y` matrices of floats, `v`, `w` vectors, `i`, `j` integers, `b`, `c` booleans,
`p` a positive definite matrix, `z` complex numbers, `s` a batch of sequences, `g` a batch of images, `k` and `t` weights, `n`
indices, `l` labels; `F` is torch.nn.functional, `mnn` mlx.nn. A pair says how far the equality goes:

exact    one function of MLX, with the same arguments in the same order
mapped   an expression of MLX, or other argument names
partial  the same for the arguments shown, while torch's function takes more (layouts, modes) than MLX's
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

EXACT, MAPPED, PARTIAL, NO = "exact", "mapped", "partial", "none"


@dataclass(frozen=True)
class Equivalent:
    """A torch function, a call of it, the MLX expression with the same values, and how far that goes."""

    name: str
    call: str
    expression: str
    confidence: str


# Arguments → names of functions that torch and mlx.core have in common, by the same name, argument for argument.
SAME = {
    "(x)": "abs acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos cosh erf erfinv exp expm1 floor "
    "isfinite isinf isnan isneginf isposinf log log10 log1p log2 negative positive reciprocal round rsqrt sigmoid sign sin "
    "sinh sqrt square tan tanh trunc sum mean prod max min flatten diag tril triu squeeze ones_like zeros_like "
    "atleast_1d atleast_2d atleast_3d logical_not trace diagonal all any count_nonzero argmax argmin",
    "(x + 1)": "acosh arccosh",
    "(z)": "conj real imag",
    "(x, y)": "add subtract multiply divide maximum minimum greater greater_equal less less_equal not_equal "
    "logaddexp arctan2 atan2 pow inner kron isclose allclose logical_and logical_or "
    "tensordot",
    "(v, w)": "outer",
    "(p, p)": "matmul",
    "(i, j + 1)": "floor_divide remainder",
    "(i, j)": "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift",
    "(x, 0)": "cumsum cumprod logcumsumexp logsumexp softmax argsort",
    "(x, (4, 3))": "reshape",
    "(x, 0, 1)": "swapaxes moveaxis",
    "(b, x, y)": "where",
    "(3)": "eye arange",
    "((2, 3))": "ones zeros",
    "((2, 3), 1.5)": "full",
    "(0, 1, 5)": "linspace",
    "(x, 1.5)": "full_like",
    "(x, (2, 2))": "tile",
    "('ij,kj->ik', x, y)": "einsum",
    "(x, 0.2, 0.7)": "clip",
    "(v[:1], (3, 1))": "broadcast_to",
    "(x, 1, (2, 2))": "unflatten",
    "([x, y])": "stack concatenate concat",
    "(x, (4, 2), (1, 2))": "as_strided",
    "(x, 1)": "roll",
}
SAME_LINALG = {"(p)": "inv pinv cholesky eigvalsh", "(p, x)": "solve", "(x)": "norm", "(u, u + 1)": "cross"}
SAME_FFT = {
    "(x)": "fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn fftshift ifftshift",
    "(z)": "irfft irfft2 irfftn",
    "(6)": "fftfreq rfftfreq",
}
SAME_ACTIVATION = {
    "(x)": "glu celu elu gelu hardswish leaky_relu mish relu relu6 selu sigmoid silu softplus softshrink softsign tanh",
    "(x, 0)": "log_softmax softmax softmin",
    "(x, v[:1])": "prelu",
}
SAME_LOSS = {"(x, y)": "l1_loss mse_loss smooth_l1_loss"}

# Call of torch → expression of MLX: other names, other arguments.
OTHER = {
    "torch.absolute(x)": "mx.abs(x)",
    "torch.addcdiv(x, y, y)": "x + y / y",
    "torch.addcmul(x, y, y)": "x + y * y",
    "torch.addmm(p, p, p)": "mx.addmm(p, p, p)",
    "torch.addmv(u, p, u)": "u + p @ u",
    "torch.addbmm(p, s, s.mT)": "p + mx.sum(s @ mx.swapaxes(s, -1, -2), 0)",
    "torch.baddbmm(s, s, s)": "s + s @ s",
    "torch.addr(p, u, u)": "p + mx.outer(u, u)",
    "torch.amax(x, 0)": "mx.max(x, 0)",
    "torch.amin(x, 0)": "mx.min(x, 0)",
    "torch.aminmax(x)": "(mx.min(x), mx.max(x))",
    "torch.argwhere(b)": "mx.array([[r, c] for r in range(b.shape[0]) for c in range(b.shape[1]) if b[r, c].item()])",
    "torch.bitwise_not(i)": "mx.bitwise_invert(i)",
    "torch.bmm(s, s)": "mx.matmul(s, s)",
    "torch.broadcast_tensors(v[:1], x[:, :1])": "mx.broadcast_arrays(v[:1], x[:, :1])",
    "torch.bucketize(v, mx_sorted)": "mx.searchsorted(mx_sorted, v)",
    "torch.searchsorted(mx_sorted, v)": "mx.searchsorted(mx_sorted, v)",
    "torch.cat([x, y], 1)": "mx.concatenate([x, y], 1)",
    "torch.chunk(x, 2, 1)": "mx.split(x, 2, 1)",
    "torch.clamp(x, 0.2, 0.7)": "mx.clip(x, 0.2, 0.7)",
    "torch.clamp_min(x, 0.2)": "mx.maximum(x, 0.2)",
    "torch.clamp_max(x, 0.7)": "mx.minimum(x, 0.7)",
    "torch.clone(x)": "mx.array(x)",
    "torch.column_stack([v, w])": "mx.stack([v, w], 1)",
    "torch.complex(x, y)": "x + 1j * y",
    "torch.copysign(x, -y)": "mx.where(-y < 0, -mx.abs(x), mx.abs(x))",
    "torch.corrcoef(x)": "(lambda d: (d @ d.T) / mx.sqrt(mx.outer(mx.sum(d * d, 1), mx.sum(d * d, 1))))(x - mx.mean(x, 1, True))",
    "torch.cov(x)": "(lambda d: d @ d.T / (x.shape[1] - 1))(x - mx.mean(x, 1, True))",
    "torch.cross(p, p + 1, dim=-1)": "mx.linalg.cross(p, p + 1)",
    "torch.cummax(x, 0).values": "mx.cummax(x, 0)",
    "torch.cummin(x, 0).values": "mx.cummin(x, 0)",
    "torch.deg2rad(x)": "mx.radians(x)",
    "torch.rad2deg(x)": "mx.degrees(x)",
    "torch.det(p)": "mx.linalg.det(p, stream=mx.cpu)",
    "torch.diff(v)": "mx.diff(v)",
    "torch.dist(x, y)": "mx.linalg.norm(x - y)",
    "torch.div(x, y)": "mx.divide(x, y)",
    "torch.dot(v, w)": "mx.sum(v * w)",
    "torch.vdot(v, w)": "mx.vecdot(v, w)",
    "torch.dstack([x, y])": "mx.stack([x, y], 2)",
    "torch.equal(x, y)": "mx.array_equal(x, y)",
    "torch.transpose(x, 0, 1)": "mx.swapaxes(x, 0, 1)",
    "torch.eq(x, y)": "mx.equal(x, y)",
    "torch.erfc(x)": "1 - mx.erf(x)",
    "torch.exp2(x)": "mx.power(2.0, x)",
    "torch.fix(x)": "mx.trunc(x)",
    "torch.flip(x, [0])": "x[::-1]",
    "torch.fliplr(x)": "x[:, ::-1]",
    "torch.flipud(x)": "x[::-1]",
    "torch.float_power(x, 2.0).float()": "mx.power(x, 2.0)",
    "torch.frac(x)": "x - mx.trunc(x)",
    "torch.gather(x, 1, n)": "mx.take_along_axis(x, n, 1)",
    "torch.take_along_dim(x, n, 1)": "mx.take_along_axis(x, n, 1)",
    "torch.ge(x, y)": "mx.greater_equal(x, y)",
    "torch.gt(x, y)": "mx.greater(x, y)",
    "torch.le(x, y)": "mx.less_equal(x, y)",
    "torch.lt(x, y)": "mx.less(x, y)",
    "torch.ne(x, y)": "mx.not_equal(x, y)",
    "torch.heaviside(x - 0.5, y)": "mx.where(x - 0.5 == 0, y, (x - 0.5 > 0).astype(mx.float32))",
    "torch.hstack([x, y])": "mx.concatenate([x, y], 1)",
    "torch.vstack([x, y])": "mx.concatenate([x, y], 0)",
    "torch.row_stack([x, y])": "mx.concatenate([x, y], 0)",
    "torch.hypot(x, y)": "mx.sqrt(x * x + y * y)",
    "torch.index_select(x, 1, n[0])": "mx.take(x, n[0], 1)",
    "torch.inverse(p)": "mx.linalg.inv(p, stream=mx.cpu)",
    "torch.lerp(x, y, 0.3)": "x + 0.3 * (y - x)",
    "torch.ldexp(x, i)": "x * mx.power(2, i)",
    "torch.logaddexp2(x, y)": "mx.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)",
    "torch.logdet(p)": "mx.linalg.slogdet(p, stream=mx.cpu)[1]",
    "torch.slogdet(p)": "mx.linalg.slogdet(p, stream=mx.cpu)",
    "torch.logical_xor(b, c)": "b != c",
    "torch.logit(x * 0.8 + 0.1)": "(lambda q: mx.log(q / (1 - q)))(x * 0.8 + 0.1)",
    "torch.logspace(0, 1, 5)": "mx.power(10.0, mx.linspace(0, 1, 5))",
    "torch.masked_fill(x, b, 0.5)": "mx.where(b, 0.5, x)",
    "torch.matrix_power(p, 2)": "p @ p",
    "torch.meshgrid(v, w, indexing='ij')": "mx.meshgrid(v, w, indexing='ij')",
    "torch.mm(p, p)": "mx.matmul(p, p)",
    "torch.movedim(s, 0, 2)": "mx.moveaxis(s, 0, 2)",
    "torch.msort(x)": "mx.sort(x, 0)",
    "torch.mul(x, y)": "mx.multiply(x, y)",
    "torch.mv(p, u)": "mx.matmul(p, u)",
    "torch.nan_to_num(x / (x - x))": "mx.nan_to_num(x / (x - x))",
    "torch.narrow(x, 1, 0, 2)": "mx.slice(x, mx.array([0, 0]), (0, 1), (3, 2))",
    "torch.neg(x)": "mx.negative(x)",
    "torch.norm(x)": "mx.linalg.norm(x)",
    "torch.permute(s, (2, 0, 1))": "mx.permute_dims(s, (2, 0, 1))",
    "torch.polar(x, y)": "x * mx.cos(y) + 1j * (x * mx.sin(y))",
    "torch.ravel(x)": "mx.flatten(x)",
    "torch.relu(x - 0.5)": "mx.maximum(x - 0.5, 0)",
    "torch.repeat_interleave(x, 2, 0)": "mx.repeat(x, 2, 0)",
    "torch.rot90(x)": "mx.transpose(x)[::-1]",
    "torch.rsub(x, y)": "mx.subtract(y, x)",
    "torch.scatter(x, 1, n, y[:, :2])": "mx.put_along_axis(x, n, y[:, :2], 1)",
    "torch.select(x, 1, 2)": "x[:, 2]",
    "torch.sgn(x)": "mx.sign(x)",
    "torch.signbit(x - 0.5)": "x - 0.5 < 0",
    "torch.sinc(x)": "mx.sin(math.pi * x) / (math.pi * x)",
    "torch.sort(x, 1).values": "mx.sort(x, 1)",
    "torch.split(x, 2, 1)": "mx.split(x, 2, 1)",
    "torch.std(x)": "mx.std(x, ddof=1)",
    "torch.var(x)": "mx.var(x, ddof=1)",
    "torch.std_mean(x)": "(mx.std(x, ddof=1), mx.mean(x))",
    "torch.var_mean(x)": "(mx.var(x, ddof=1), mx.mean(x))",
    "torch.sub(x, y)": "mx.subtract(x, y)",
    "torch.swapdims(x, 0, 1)": "mx.swapaxes(x, 0, 1)",
    "torch.t(x)": "mx.transpose(x)",
    "torch.adjoint(z)": "mx.conj(mx.transpose(z))",
    "torch.take(x, n)": "mx.take(x, n)",
    "torch.tensor_split(x, 2, 1)": "mx.split(x, 2, 1)",
    "torch.hsplit(x, 2)": "mx.split(x, 2, 1)",
    "torch.vsplit(g[0, 0], 2)": "mx.split(g[0, 0], 2, 0)",
    "torch.topk(v, 2).values": "mx.sort(v)[::-1][:2]",
    "torch.median(v)": "mx.sort(v)[(v.size - 1) // 2]",
    "torch.kthvalue(v, 2).values": "mx.partition(v, 1)[1]",
    "torch.true_divide(x, y)": "mx.divide(x, y)",
    "torch.tril_indices(3, 3)": "mx.array([[r, c] for r in range(3) for c in range(r + 1)]).T",
    "torch.triu_indices(3, 3)": "mx.array([[r, c] for r in range(3) for c in range(r, 3)]).T",
    "torch.unbind(x)": "mx.unstack(x)",
    "torch.unsqueeze(x, 0)": "mx.expand_dims(x, 0)",
    "torch.vander(v)": "mx.power(mx.expand_dims(v, 1), mx.arange(v.size - 1, -1, -1))",
    "torch.view_as_real(z)": "mx.stack([mx.real(z), mx.imag(z)], -1)",
    "torch.view_as_complex(torch.stack([x, y], -1))": "x + 1j * y",
    "torch.xlogy(x, y)": "x * mx.log(y)",
    "torch.trapezoid(v)": "mx.sum((v[1:] + v[:-1]) / 2)",
    "torch.cartesian_prod(v, w)": "mx.stack([mx.repeat(v, w.size), mx.tile(w, v.size)], 1)",
    "torch.block_diag(p, p)": "mx.concatenate([mx.concatenate([p, p * 0], 1), mx.concatenate([p * 0, p], 1)], 0)",
    "torch.chain_matmul(p, p, p)": "p @ p @ p",
    "torch.bartlett_window(6, periodic=False)": "mx.bartlett(6)",
    "torch.blackman_window(6, periodic=False)": "mx.blackman(6)",
    "torch.hamming_window(6, periodic=False)": "mx.hamming(6)",
    "torch.hann_window(6, periodic=False)": "mx.hanning(6)",
    "torch.signal.windows.bartlett(6)": "mx.bartlett(6)",
    "torch.signal.windows.blackman(6)": "mx.blackman(6)",
    "torch.signal.windows.hamming(6)": "mx.hamming(6)",
    "torch.signal.windows.hann(6)": "mx.hanning(6)",
    "torch.isin(i, j)": "mx.any(mx.expand_dims(i, -1) == mx.flatten(j), -1)",
    "torch.log_softmax(x, 1)": "x - mx.logsumexp(x, 1, True)",
    "torch.tensor([1.0, 2.0])": "mx.array([1.0, 2.0])",
    "torch.as_tensor(x)": "mx.asarray(x)",
    "torch.asarray(x)": "mx.asarray(x)",
    "torch.is_floating_point(x)": "mx.issubdtype(x.dtype, mx.floating)",
    "torch.is_complex(z)": "mx.issubdtype(z.dtype, mx.complexfloating)",
    # linalg
    "torch.cholesky(p)": "mx.linalg.cholesky(p, stream=mx.cpu)",
    "torch.linalg.det(p)": "mx.linalg.det(p, stream=mx.cpu)",
    "torch.linalg.slogdet(p)": "mx.linalg.slogdet(p, stream=mx.cpu)",
    "torch.linalg.svdvals(x)": "mx.linalg.svd(x, compute_uv=False, stream=mx.cpu)",
    "torch.linalg.svd(x).S": "mx.linalg.svd(x, stream=mx.cpu)[1]",
    "torch.linalg.eigh(p).eigenvalues": "mx.linalg.eigh(p, stream=mx.cpu)[0]",
    "torch.linalg.qr(p).R.abs()": "mx.abs(mx.linalg.qr(p, stream=mx.cpu)[1])",
    "torch.linalg.matmul(p, p)": "mx.matmul(p, p)",
    "torch.linalg.multi_dot([p, p, p])": "p @ p @ p",
    "torch.linalg.matrix_power(p, 2)": "p @ p",
    "torch.linalg.vector_norm(x)": "mx.linalg.norm(mx.flatten(x))",
    "torch.linalg.matrix_norm(x)": "mx.linalg.norm(x)",
    "torch.linalg.vecdot(x, y)": "mx.vecdot(x, y)",
    "torch.linalg.diagonal(p)": "mx.diagonal(p)",
    "torch.linalg.solve_triangular(p.tril(), x, upper=False)": (
        "mx.linalg.solve_triangular(mx.tril(p), x, upper=False, stream=mx.cpu)"
    ),
    "torch.linalg.inv_ex(p).inverse": "mx.linalg.inv(p, stream=mx.cpu)",
    "torch.linalg.cholesky_ex(p).L": "mx.linalg.cholesky(p, stream=mx.cpu)",
    "torch.cholesky_inverse(p.tril())": "mx.linalg.cholesky_inv(mx.tril(p), stream=mx.cpu)",
    "torch.svd(x).S": "mx.linalg.svd(x, stream=mx.cpu)[1]",
    "torch.pinverse(p)": "mx.linalg.pinv(p, stream=mx.cpu)",
    "torch.triangular_solve(x, p.tril(), upper=False).solution": (
        "mx.linalg.solve_triangular(mx.tril(p), x, upper=False, stream=mx.cpu)"
    ),
    # special
    "torch.special.erf(x)": "mx.erf(x)",
    "torch.special.erfc(x)": "1 - mx.erf(x)",
    "torch.special.erfinv(x)": "mx.erfinv(x)",
    "torch.special.exp2(x)": "mx.power(2.0, x)",
    "torch.special.expit(x)": "mx.sigmoid(x)",
    "torch.special.expm1(x)": "mx.expm1(x)",
    "torch.special.log1p(x)": "mx.log1p(x)",
    "torch.special.log_softmax(x, 1)": "x - mx.logsumexp(x, 1, True)",
    "torch.special.softmax(x, 1)": "mx.softmax(x, 1)",
    "torch.special.logsumexp(x, 1)": "mx.logsumexp(x, 1)",
    "torch.special.logit(x * 0.8 + 0.1)": "(lambda q: mx.log(q / (1 - q)))(x * 0.8 + 0.1)",
    "torch.special.ndtr(x)": "0.5 * (1 + mx.erf(x / math.sqrt(2)))",
    "torch.special.ndtri(x * 0.8 + 0.1)": "math.sqrt(2) * mx.erfinv(2 * (x * 0.8 + 0.1) - 1)",
    "torch.special.entr(x)": "-x * mx.log(x)",
    "torch.special.round(x)": "mx.round(x)",
    "torch.special.sinc(x)": "mx.sin(math.pi * x) / (math.pi * x)",
    "torch.special.xlogy(x, y)": "x * mx.log(y)",
    "torch.special.xlog1py(x, y)": "x * mx.log1p(y)",
    # activations, layers and losses as functions
    "F.linear(x, t, u)": "mx.addmm(u, x, t.T)",
    "F.bilinear(x, x, k3)": "mx.einsum('bi,oij,bj->bo', x, k3, x)",
    "F.embedding(n, x)": "mx.take(x, n, 0)",
    "F.one_hot(l, 4)": "(mx.expand_dims(l, 1) == mx.arange(4)).astype(mx.int64)",
    "F.normalize(x)": "x / mx.linalg.norm(x, axis=1, keepdims=True)",
    "F.layer_norm(x, (4,), v, w)": "mx.fast.layer_norm(x, v, w, 1e-5)",
    "F.rms_norm(x, (4,), v, 1e-5)": "mx.fast.rms_norm(x, v, 1e-5)",
    "F.scaled_dot_product_attention(a, a, a)": "mx.fast.scaled_dot_product_attention(a, a, a, scale=1 / math.sqrt(8))",
    "F.logsigmoid(x)": "mnn.log_sigmoid(x)",
    "F.hardtanh(x)": "mnn.hard_tanh(x)",
    "F.hardshrink(x)": "mnn.hard_shrink(x)",
    "F.hardsigmoid(x)": "mx.clip(x / 6 + 0.5, 0, 1)",
    "F.tanhshrink(x)": "x - mx.tanh(x)",
    "F.threshold(x, 0.5, 0.1)": "mx.where(x > 0.5, x, 0.1)",
    "F.cosine_similarity(x, y)": "mnn.losses.cosine_similarity_loss(x, y)",
    "F.pairwise_distance(x, y)": "mx.linalg.norm(x - y + 1e-6, axis=1)",
    "F.cross_entropy(x, l)": "mnn.losses.cross_entropy(x, l, reduction='mean')",
    "F.nll_loss(x, l)": "mnn.losses.nll_loss(x, l, reduction='mean')",
    "F.binary_cross_entropy(x, y)": "mnn.losses.binary_cross_entropy(x, y, with_logits=False)",
    "F.binary_cross_entropy_with_logits(x, y)": "mnn.losses.binary_cross_entropy(x, y)",
    "F.kl_div(x, y, reduction='sum', log_target=True)": "mx.sum(mnn.losses.kl_div_loss(x, y))",
    "F.huber_loss(x, y)": "mnn.losses.huber_loss(x, y, reduction='mean')",
    "F.gaussian_nll_loss(x, y, y + 1)": "mnn.losses.gaussian_nll_loss(x, y, y + 1)",
    "F.margin_ranking_loss(v, w, torch.ones(4))": (
        "mnn.losses.margin_ranking_loss(v, w, mx.ones(4), reduction='mean')"
    ),
    "F.triplet_margin_loss(x, y, y + 1)": "mnn.losses.triplet_loss(x, y, y + 1, reduction='mean')",
    "F.soft_margin_loss(x, torch.ones_like(x))": "mx.mean(mx.log1p(mx.exp(-x)))",
    "F.poisson_nll_loss(x, y)": "mx.mean(mx.exp(x) - y * x)",
    "F.pad(x, (1, 2))": "mx.pad(x, [(0, 0), (1, 2)])",
    "F.conv1d(s, k1)": "mx.moveaxis(mx.conv1d(mx.moveaxis(s, 1, -1), mx.moveaxis(k1, 1, -1)), -1, 1)",
    "F.conv2d(g, k)": "mx.moveaxis(mx.conv2d(mx.moveaxis(g, 1, -1), mx.moveaxis(k, 1, -1)), -1, 1)",
    "torch.conv1d(s, k1)": "mx.moveaxis(mx.conv1d(mx.moveaxis(s, 1, -1), mx.moveaxis(k1, 1, -1)), -1, 1)",
    "torch.conv2d(g, k)": "mx.moveaxis(mx.conv2d(mx.moveaxis(g, 1, -1), mx.moveaxis(k, 1, -1)), -1, 1)",
    "F.max_pool1d(s, 3)": "mx.moveaxis(mnn.MaxPool1d(3, 3)(mx.moveaxis(s, 1, -1)), -1, 1)",
    "F.avg_pool1d(s, 3)": "mx.moveaxis(mnn.AvgPool1d(3, 3)(mx.moveaxis(s, 1, -1)), -1, 1)",
    "F.max_pool2d(g, 2)": "mx.moveaxis(mnn.MaxPool2d(2, 2)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "F.avg_pool2d(g, 2)": "mx.moveaxis(mnn.AvgPool2d(2, 2)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "F.interpolate(g, scale_factor=2)": "mx.moveaxis(mnn.Upsample(2.0)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "F.upsample(g, scale_factor=2)": "mx.moveaxis(mnn.Upsample(2.0)(mx.moveaxis(g, 1, -1)), -1, 1)",
    # autograd and functional transforms
    "torch.func.grad(lambda q: torch.sum(torch.sin(q)))(v)": "mx.grad(lambda q: mx.sum(mx.sin(q)))(v)",
    "torch.func.vmap(lambda q: q * 2)(x)": "mx.vmap(lambda q: q * 2)(x)",
    "torch.vmap(lambda q: q * 2)(x)": "mx.vmap(lambda q: q * 2)(x)",
    "torch.func.jvp(torch.sin, (v,), (w,))[1]": "mx.jvp(mx.sin, [v], [w])[1][0]",
    "torch.func.vjp(torch.sin, v)[1](w)[0]": "mx.vjp(mx.sin, [v], [w])[1][0]",
    # modules without weights
    "torch.nn.Identity()(x)": "mnn.Identity()(x)",
    "torch.nn.CELU()(x)": "mnn.CELU()(x)",
    "torch.nn.ELU()(x)": "mnn.ELU()(x)",
    "torch.nn.GELU()(x)": "mnn.GELU()(x)",
    "torch.nn.GLU()(x)": "mnn.GLU()(x)",
    "torch.nn.Hardshrink()(x)": "mnn.HardShrink()(x)",
    "torch.nn.Hardswish()(x)": "mnn.Hardswish()(x)",
    "torch.nn.Hardtanh()(x)": "mnn.HardTanh()(x)",
    "torch.nn.LeakyReLU()(x)": "mnn.LeakyReLU()(x)",
    "torch.nn.LogSigmoid()(x)": "mnn.LogSigmoid()(x)",
    "torch.nn.LogSoftmax(1)(x)": "mnn.LogSoftmax()(x)",
    "torch.nn.Mish()(x)": "mnn.Mish()(x)",
    "torch.nn.PReLU()(x)": "mnn.PReLU()(x)",
    "torch.nn.ReLU()(x)": "mnn.ReLU()(x)",
    "torch.nn.ReLU6()(x)": "mnn.ReLU6()(x)",
    "torch.nn.SELU()(x)": "mnn.SELU()(x)",
    "torch.nn.SiLU()(x)": "mnn.SiLU()(x)",
    "torch.nn.Sigmoid()(x)": "mnn.Sigmoid()(x)",
    "torch.nn.Softmax(1)(x)": "mnn.Softmax()(x)",
    "torch.nn.Softmin(1)(x)": "mnn.Softmin()(x)",
    "torch.nn.Softplus()(x)": "mnn.Softplus()(x)",
    "torch.nn.Softshrink()(x)": "mnn.Softshrink()(x)",
    "torch.nn.Softsign()(x)": "mnn.Softsign()(x)",
    "torch.nn.Tanh()(x)": "mnn.Tanh()(x)",
    "torch.nn.Tanhshrink()(x)": "x - mx.tanh(x)",
    "torch.nn.Threshold(0.5, 0.1)(x)": "mx.where(x > 0.5, x, 0.1)",
    "torch.nn.Flatten()(g)": "mx.flatten(g, 1)",
    "torch.nn.Unflatten(1, (2, 2))(x)": "mx.unflatten(x, 1, (2, 2))",
    "torch.nn.MaxPool1d(3)(s)": "mx.moveaxis(mnn.MaxPool1d(3, 3)(mx.moveaxis(s, 1, -1)), -1, 1)",
    "torch.nn.AvgPool1d(3)(s)": "mx.moveaxis(mnn.AvgPool1d(3, 3)(mx.moveaxis(s, 1, -1)), -1, 1)",
    "torch.nn.MaxPool2d(2)(g)": "mx.moveaxis(mnn.MaxPool2d(2, 2)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "torch.nn.AvgPool2d(2)(g)": "mx.moveaxis(mnn.AvgPool2d(2, 2)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "torch.nn.Upsample(scale_factor=2)(g)": "mx.moveaxis(mnn.Upsample(2.0)(mx.moveaxis(g, 1, -1)), -1, 1)",
    "torch.nn.LayerNorm(4)(x)": "mnn.LayerNorm(4)(x)",
    "torch.nn.RMSNorm(4, eps=1e-5)(x)": "mnn.RMSNorm(4)(x)",
    "torch.nn.GroupNorm(1, 4)(x)": "mnn.GroupNorm(1, 4)(x)",
    "torch.nn.L1Loss()(x, y)": "mnn.losses.l1_loss(x, y)",
    "torch.nn.MSELoss()(x, y)": "mnn.losses.mse_loss(x, y)",
    "torch.nn.SmoothL1Loss()(x, y)": "mnn.losses.smooth_l1_loss(x, y)",
    "torch.nn.HuberLoss()(x, y)": "mnn.losses.huber_loss(x, y, reduction='mean')",
    "torch.nn.CrossEntropyLoss()(x, l)": "mnn.losses.cross_entropy(x, l, reduction='mean')",
    "torch.nn.NLLLoss()(x, l)": "mnn.losses.nll_loss(x, l, reduction='mean')",
    "torch.nn.BCELoss()(x, y)": "mnn.losses.binary_cross_entropy(x, y, with_logits=False)",
    "torch.nn.BCEWithLogitsLoss()(x, y)": "mnn.losses.binary_cross_entropy(x, y)",
    "torch.nn.GaussianNLLLoss()(x, y, y + 1)": "mnn.losses.gaussian_nll_loss(x, y, y + 1)",
    "torch.nn.TripletMarginLoss()(x, y, y + 1)": "mnn.losses.triplet_loss(x, y, y + 1, reduction='mean')",
    "torch.nn.CosineSimilarity()(x, y)": "mnn.losses.cosine_similarity_loss(x, y)",
}
# Layers whose MLX twin takes images with the channels last, or lacks modes of torch's.
_PARTIAL = re.compile(
    r"(conv|pool|upsample|interpolate|pad|norm\b|rot90|svd|qr|topk|kthvalue|median|nll_loss|cross_entropy)", re.I
)


@cache
def equivalents() -> dict[str, Equivalent]:
    """Every pair, by the name of torch's function."""
    return {each.name: each for each in (*_same(), *_other())}


def equivalent_of(name: str, verified: frozenset[str]) -> Equivalent:
    """The pair for a name if its values were found to agree; a tensor method has that of its function."""
    twin = name.replace("torch.Tensor.", "torch.", 1)
    for candidate in (name, twin):
        if candidate in verified and candidate in equivalents():
            return equivalents()[candidate]
    return Equivalent(name, "", "", NO)


def _same() -> Iterator[Equivalent]:
    groups = (
        (SAME, "torch", "mx"),
        (SAME_LINALG, "torch.linalg", "mx.linalg"),
        (SAME_FFT, "torch.fft", "mx.fft"),
        (SAME_ACTIVATION, "torch.nn.functional", "mnn"),
        (SAME_LOSS, "torch.nn.functional", "mnn.losses"),
    )
    for table, ours, theirs in groups:
        for arguments, names in table.items():
            for name in names.split():
                given = arguments
                if ours == "torch.linalg" and name not in ("norm", "cross"):
                    given = f"{arguments[:-1]}, stream=mx.cpu)"  # MLX has its decompositions on the CPU only
                yield Equivalent(f"{ours}.{name}", f"{ours}.{name}{arguments}", f"{theirs}.{name}{given}", EXACT)


def _other() -> Iterator[Equivalent]:
    for call, expression in OTHER.items():
        path = re.match(r"[\w.]+", call)
        assert path is not None
        name = re.sub(r"^F\.", "torch.nn.functional.", path[0])
        yield Equivalent(name, call, expression, PARTIAL if _PARTIAL.search(name) else MAPPED)
