import torch

decoder = torch.nn.ConvTranspose2d(4, 3, 8, 8).to("mps")
latent = torch.ones(1, 4, 16, 16, device="mps")
with torch.no_grad():
    tiles = [decoder(part).cpu() for part in latent.split(4, dim=2)]
    torch.mps.empty_cache()
    whole = decoder(latent).cpu()
torch.testing.assert_close(torch.cat(tiles, 2), whole, rtol=1e-4, atol=1e-5)
