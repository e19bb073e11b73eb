"""WGAN-GP in the manner of the tutorials: torch.cuda.FloatTensor, Variable, gradient penalty by autograd.grad."""

import json

import numpy as np
import torch
import torch.autograd as autograd
from torch import nn
from torch.autograd import Variable

img_shape, latent_dim, lambda_gp, n_critic = (1, 8, 8), 16, 10, 3
np.random.seed(0)
torch.manual_seed(0)

cuda = True if torch.cuda.is_available() else False  # noqa: SIM210 - as the tutorials write it
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


class Generator(nn.Module):
    def __init__(self):
        super().__init__()

        def block(inputs, outputs, normalize=True):
            layers = [nn.Linear(inputs, outputs)]
            if normalize:
                layers.append(nn.BatchNorm1d(outputs, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(latent_dim, 32, normalize=False), *block(32, 64), nn.Linear(64, int(np.prod(img_shape))), nn.Tanh()
        )

    def forward(self, z):
        img = self.model(z)
        return img.view(img.shape[0], *img_shape)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(int(np.prod(img_shape)), 64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(64, 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 1),
        )

    def forward(self, img):
        return self.model(img.view(img.shape[0], -1))


generator = Generator()
discriminator = Discriminator()
if cuda:
    generator.cuda()
    discriminator.cuda()

optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


images = torch.utils.data.TensorDataset(torch.from_numpy(np.random.rand(96, *img_shape)) * 2 - 1)
order = torch.Generator().manual_seed(0)
dataloader = torch.utils.data.DataLoader(images, batch_size=16, shuffle=True, generator=order)

steps, d_losses, g_losses = 0, [], []
for epoch in range(2):
    for i, (imgs,) in enumerate(dataloader):
        real_imgs = Variable(imgs.type(Tensor))

        optimizer_D.zero_grad()
        z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], latent_dim))))
        fake_imgs = generator(z)
        real_validity = discriminator(real_imgs)
        fake_validity = discriminator(fake_imgs)
        gradient_penalty = compute_gradient_penalty(discriminator, real_imgs.data, fake_imgs.data)
        d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + lambda_gp * gradient_penalty
        d_loss.backward()
        optimizer_D.step()
        d_losses.append(d_loss.item())
        steps += 1

        optimizer_G.zero_grad()
        if i % n_critic == 0:
            g_loss = -torch.mean(discriminator(generator(z)))
            g_loss.backward()
            optimizer_G.step()
            g_losses.append(g_loss.item())
    print(f"[Epoch {epoch}] [D loss: {d_loss.item():f}] [G loss: {g_loss.item():f}]")

assert isinstance(real_imgs, Tensor)
devices = sorted({str(p.device) for p in [*generator.parameters(), *discriminator.parameters()]})
print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": d_losses + g_losses}))
