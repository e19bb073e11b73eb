"""kornia: filters, colour, geometry, features, an augmentation pipeline and a differentiable registration, .cuda()."""

import json

import kornia as K
import kornia.augmentation as KA
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.RandomState(0)
image = K.image_to_tensor((rng.rand(24, 32, 3) * 255).astype(np.uint8), keepdim=False).float().cuda() / 255.0
values = []
gray = K.color.rgb_to_grayscale(image)
hsv = K.color.hsv_to_rgb(K.color.rgb_to_hsv(image))
values += [gray.mean().item(), (hsv - image).abs().max().item()]
values.append(K.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5)).std().item())
values.append(K.filters.sobel(gray).mean().item())
values.append(K.filters.median_blur(image, (3, 3)).mean().item())
magnitude, edges = K.filters.canny(gray)
values += [magnitude.mean().item(), edges.sum().item() / 100]
values.append(K.morphology.dilation(gray, torch.ones(3, 3).cuda()).mean().item())
angle, center = torch.tensor([15.0]).cuda(), torch.tensor([[16.0, 12.0]]).cuda()
matrix = K.geometry.get_rotation_matrix2d(center, angle, torch.ones(1, 2).cuda())
values.append(K.geometry.warp_affine(image, matrix, dsize=(24, 32)).mean().item())
points_src = torch.tensor([[[0.0, 0.0], [31.0, 0.0], [31.0, 23.0], [0.0, 23.0]]]).cuda()
points_dst = points_src + torch.tensor([[[1.0, 2.0], [-2.0, 1.0], [0.5, -1.0], [1.5, 0.5]]]).cuda()
homography = K.geometry.get_perspective_transform(points_src, points_dst)
values += homography.flatten()[:6].tolist()
values.append(K.geometry.warp_perspective(image, homography, (24, 32)).mean().item())
values.append(K.feature.harris_response(gray).abs().mean().item() * 100)
values.append(K.metrics.psnr(image, image * 0.9, 1.0).item())
values.append(K.losses.ssim_loss(image, image * 0.8, 5).item())

augment = KA.AugmentationSequential(
    KA.RandomHorizontalFlip(p=1.0), KA.ColorJitter(0.1, 0.1, 0.1, 0.1, p=0.0), KA.Resize((16, 16)), data_keys=["input"]
).cuda()
augmented = augment(image)
values.append(augmented.mean().item())
affine = KA.RandomAffine(degrees=30.0, p=1.0).cuda()(image)
assert affine.shape == image.shape

shift = nn.Parameter(torch.zeros(1, 2).cuda())
target = K.geometry.translate(image, torch.tensor([[2.0, -1.0]]).cuda())
optimizer = torch.optim.Adam([shift], lr=0.3)
for _ in range(6):
    loss = nn.functional.l1_loss(K.geometry.translate(image, shift), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(each.device) for each in (shift, affine, augmented, homography)})
print("RESULT", json.dumps({"steps": 6, "devices": devices, "values": values}))
