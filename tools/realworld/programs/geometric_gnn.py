"""torch_geometric: GCN and GAT on one graph, batches of graphs from its loader, pooling, all sent to the GPU."""

import json

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool
from torch_geometric.utils import add_self_loops, degree, to_undirected

torch.manual_seed(12345)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rng = np.random.RandomState(0)


def graph(nodes, edges, label=None):
    y = rng.randint(0, 3, nodes)
    x = rng.rand(nodes, 8).astype(np.float32)
    x[np.arange(nodes), y] += 1
    edge_index = to_undirected(torch.from_numpy(rng.randint(0, nodes, (2, edges))))
    y = torch.from_numpy(y) if label is None else torch.tensor([label])
    return Data(x=torch.from_numpy(x), edge_index=edge_index, y=y, train_mask=torch.arange(nodes) < nodes // 2)


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(8, 16, cached=True)
        self.conv2 = GCNConv(16, 3)

    def forward(self, data):
        x = F.relu(self.conv1(data.x, data.edge_index))
        return F.log_softmax(self.conv2(x, data.edge_index), dim=1)


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(8, 8, heads=4)
        self.conv2 = GATConv(32, 3, heads=1, concat=False)

    def forward(self, data):
        x = F.elu(self.conv1(data.x, data.edge_index))
        return F.log_softmax(self.conv2(x, data.edge_index), dim=1)


class GraphClassifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(8, 16)
        self.lin = torch.nn.Linear(16, 2)

    def forward(self, data):
        return self.lin(global_mean_pool(self.conv(data.x, data.edge_index).relu(), data.batch))


data = graph(40, 120).to(device)
losses, models = [], []
for kind in (GCN, GAT):
    model = kind().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(5):
        model.train()
        optimizer.zero_grad()
        out = model(data)
        loss = F.nll_loss(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    pred = model(data).argmax(dim=1)
    correct = (pred[~data.train_mask] == data.y[~data.train_mask]).sum()
    losses.append(int(correct) / int((~data.train_mask).sum()))
    models.append(model)

loader = DataLoader([graph(6, 12, label % 2) for label in range(16)], batch_size=4, shuffle=False)
model = GraphClassifier().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    batch = batch.to(device, non_blocking=True)
    loss = F.cross_entropy(model(batch), batch.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
edge_index, _ = add_self_loops(data.edge_index, num_nodes=data.num_nodes)
losses.append(degree(edge_index[0], data.num_nodes).max().item())
devices = sorted({str(parameter.device) for each in (*models, model) for parameter in each.parameters()})
print("RESULT", json.dumps({"steps": 14, "devices": devices, "values": losses}))
