"""NeRF in the manner of nerf-pytorch: set_default_tensor_type('torch.cuda.FloatTensor'), rays, positional encoding."""

import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
np.random.seed(0)
img2mse = lambda x, y: torch.mean((x - y) ** 2)
mse2psnr = lambda x: -10.0 * torch.log(x) / torch.log(torch.Tensor([10.0]))
to8b = lambda x: (255 * np.clip(x, 0, 1)).astype(np.uint8)


class Embedder:
    def __init__(self, multires):
        freq_bands = 2.0 ** torch.linspace(0.0, multires - 1, steps=multires)
        self.embed_fns = [lambda x: x]
        for freq in freq_bands:
            for p_fn in (torch.sin, torch.cos):
                self.embed_fns.append(lambda x, p_fn=p_fn, freq=freq: p_fn(x * freq))
        self.out_dim = 3 * len(self.embed_fns)

    def embed(self, inputs):
        return torch.cat([fn(inputs) for fn in self.embed_fns], -1)


class NeRF(nn.Module):
    def __init__(self, D=3, W=32, input_ch=3, input_ch_views=3, skips=(1,)):
        super().__init__()
        self.skips, self.input_ch, self.input_ch_views = skips, input_ch, input_ch_views
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, W)] + [nn.Linear(W + input_ch if i in skips else W, W) for i in range(D - 1)]
        )
        self.views_linears = nn.ModuleList([nn.Linear(input_ch_views + W, W // 2)])
        self.feature_linear = nn.Linear(W, W)
        self.alpha_linear = nn.Linear(W, 1)
        self.rgb_linear = nn.Linear(W // 2, 3)

    def forward(self, x):
        input_pts, input_views = torch.split(x, [self.input_ch, self.input_ch_views], dim=-1)
        h = input_pts
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([input_pts, h], -1)
        alpha = self.alpha_linear(h)
        h = torch.cat([self.feature_linear(h), input_views], -1)
        for layer in self.views_linears:
            h = F.relu(layer(h))
        return torch.cat([self.rgb_linear(h), alpha], -1)


def get_rays(H, W, K, c2w):
    i, j = torch.meshgrid(torch.linspace(0, W - 1, W), torch.linspace(0, H - 1, H), indexing="ij")
    i, j = i.t(), j.t()
    dirs = torch.stack([(i - K[0][2]) / K[0][0], -(j - K[1][2]) / K[1][1], -torch.ones_like(i)], -1)
    rays_d = torch.sum(dirs[..., np.newaxis, :] * c2w[:3, :3], -1)
    rays_o = c2w[:3, -1].expand(rays_d.shape)
    return rays_o, rays_d


def raw2outputs(raw, z_vals, rays_d, raw_noise_std=0.0, white_bkgd=True):
    raw2alpha = lambda raw, dists, act_fn=F.relu: 1.0 - torch.exp(-act_fn(raw) * dists)
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.Tensor([1e10]).expand(dists[..., :1].shape)], -1)
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
    rgb = torch.sigmoid(raw[..., :3])
    noise = 0.0
    if raw_noise_std > 0.0:
        noise = torch.randn(raw[..., 3].shape) * raw_noise_std
    alpha = raw2alpha(raw[..., 3] + noise, dists)
    ones = torch.ones((alpha.shape[0], 1))
    weights = alpha * torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    depth_map = torch.sum(weights * z_vals, -1)
    acc_map = torch.sum(weights, -1)
    disp_map = 1.0 / torch.max(1e-10 * torch.ones_like(depth_map), depth_map / torch.sum(weights, -1).clamp_min(1e-6))
    if white_bkgd:
        rgb_map = rgb_map + (1.0 - acc_map[..., None])
    return rgb_map, disp_map, weights, depth_map


def sample_pdf(bins, weights, N_samples):
    weights = weights + 1e-5
    pdf = weights / torch.sum(weights, -1, keepdim=True)
    cdf = torch.cumsum(pdf, -1)
    cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
    u = torch.linspace(0.0, 1.0, steps=N_samples).expand([*cdf.shape[:-1], N_samples]).contiguous()
    inds = torch.searchsorted(cdf, u, right=True)
    below = torch.max(torch.zeros_like(inds - 1), inds - 1)
    above = torch.min((cdf.shape[-1] - 1) * torch.ones_like(inds), inds)
    inds_g = torch.stack([below, above], -1)
    matched_shape = [inds_g.shape[0], inds_g.shape[1], cdf.shape[-1]]
    cdf_g = torch.gather(cdf.unsqueeze(1).expand(matched_shape), 2, inds_g)
    bins_g = torch.gather(bins.unsqueeze(1).expand(matched_shape), 2, inds_g)
    denom = cdf_g[..., 1] - cdf_g[..., 0]
    denom = torch.where(denom < 1e-5, torch.ones_like(denom), denom)
    t = (u - cdf_g[..., 0]) / denom
    return bins_g[..., 0] + t * (bins_g[..., 1] - bins_g[..., 0])


def render_rays(ray_batch, network, embed_pts, embed_views, N_samples=12, N_importance=8):
    rays_o, rays_d, viewdirs = ray_batch[:, 0:3], ray_batch[:, 3:6], ray_batch[:, 6:9]
    t_vals = torch.linspace(0.0, 1.0, steps=N_samples)
    z_vals = (2.0 * (1.0 - t_vals) + 6.0 * t_vals).expand([ray_batch.shape[0], N_samples])
    mids = 0.5 * (z_vals[..., 1:] + z_vals[..., :-1])
    upper, lower = torch.cat([mids, z_vals[..., -1:]], -1), torch.cat([z_vals[..., :1], mids], -1)
    t_rand = torch.Tensor(np.random.rand(*z_vals.shape))
    z_vals = lower + (upper - lower) * t_rand

    def query(pts):
        flat = torch.reshape(pts, [-1, pts.shape[-1]])
        views = torch.reshape(viewdirs[:, None].expand(pts.shape), [-1, 3])
        out = network(torch.cat([embed_pts(flat), embed_views(views)], -1))
        return torch.reshape(out, [*pts.shape[:-1], out.shape[-1]])

    pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
    rgb0, _, weights, _ = raw2outputs(query(pts), z_vals, rays_d)
    z_samples = sample_pdf(0.5 * (z_vals[..., 1:] + z_vals[..., :-1]), weights[..., 1:-1], N_importance).detach()
    z_vals, _ = torch.sort(torch.cat([z_vals, z_samples], -1), -1)
    pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
    rgb, disp, _, _ = raw2outputs(query(pts), z_vals, rays_d)
    return rgb, rgb0, disp


def train():
    H = W = 12
    K = np.array([[14.0, 0, 0.5 * W], [0, 14.0, 0.5 * H], [0, 0, 1]])
    images = np.random.rand(3, H, W, 3).astype(np.float32) * 0.5
    poses = np.stack([np.eye(4, dtype=np.float32) for _ in images])
    poses[:, 2, 3] = [3.5, 4.0, 4.5]

    pts_embedder, view_embedder = Embedder(4), Embedder(2)
    model = NeRF(input_ch=pts_embedder.out_dim, input_ch_views=view_embedder.out_dim).to(device)
    optimizer = torch.optim.Adam(params=list(model.parameters()), lr=5e-3, betas=(0.9, 0.999))
    poses = torch.Tensor(poses).to(device)
    losses, psnrs = [], []
    for global_step in range(1, 13):
        img_i = np.random.choice(len(images))
        target = torch.Tensor(images[img_i]).to(device)
        rays_o, rays_d = get_rays(H, W, K, poses[img_i, :3, :4])
        coords = torch.stack(
            torch.meshgrid(torch.linspace(0, H - 1, H), torch.linspace(0, W - 1, W), indexing="ij"), -1
        )
        coords = torch.reshape(coords, [-1, 2])
        select = coords[np.random.choice(coords.shape[0], size=[64], replace=False)].long()
        rays_o, rays_d = rays_o[select[:, 0], select[:, 1]], rays_d[select[:, 0], select[:, 1]]
        target_s = target[select[:, 0], select[:, 1]]
        viewdirs = rays_d / torch.norm(rays_d, dim=-1, keepdim=True)
        batch = torch.cat([rays_o, rays_d, viewdirs.reshape(-1, 3).float()], -1)
        rgb, rgb0, _ = render_rays(batch, model, pts_embedder.embed, view_embedder.embed)
        optimizer.zero_grad()
        loss = img2mse(rgb, target_s) + img2mse(rgb0, target_s)
        psnrs.append(mse2psnr(img2mse(rgb, target_s)).item())
        loss.backward()
        optimizer.step()
        for param_group in optimizer.param_groups:
            param_group["lr"] = 5e-3 * (0.1 ** (global_step / 250))
        losses.append(loss.item())

    path = os.path.join(tempfile.mkdtemp(), f"{global_step:06d}.tar")
    torch.save({"global_step": global_step, "network": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    model.load_state_dict(torch.load(path)["network"])
    with torch.no_grad():
        rays_o, rays_d = (rays.reshape(-1, 3) for rays in get_rays(H, W, K, poses[0, :3, :4]))
        batch = torch.cat([rays_o, rays_d, rays_d / torch.norm(rays_d, dim=-1, keepdim=True)], -1)
        rgb, _, _ = render_rays(batch, model, pts_embedder.embed, view_embedder.embed)
    image = to8b(rgb.cpu().numpy())
    print(f"rendered {image.shape} {image.dtype}, loss {losses[0]:.4f} -> {losses[-1]:.4f}, PSNR {psnrs[-1]:.2f}")
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    values = losses + psnrs + rgb.cpu().numpy().reshape(-1)[:12].tolist()
    print("RESULT", json.dumps({"steps": global_step, "devices": devices, "values": values}))


if __name__ == "__main__":
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    torch.manual_seed(0)
    train()
