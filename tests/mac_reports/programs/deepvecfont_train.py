import torch

torch.manual_seed(0)
net = torch.nn.Linear(8, 2)
if torch.cuda.device_count() > 1:
    net = torch.nn.DataParallel(net)
net = net.cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = net(torch.ones(4, 8).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
