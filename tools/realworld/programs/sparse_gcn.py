"""Graph convolution in the manner of pygcn: torch.sparse.FloatTensor, adj.cuda(), torch.spmm, CSR in the evaluation."""

import json
import math

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter

np.random.seed(42)
torch.manual_seed(42)
torch.cuda.manual_seed(42)
cuda = torch.cuda.is_available()


def load_data(nodes=120, features=24, classes=4):
    labels = np.random.randint(0, classes, nodes)
    same = labels[:, None] == labels[None, :]
    adj = np.random.rand(nodes, nodes) < np.where(same, 0.12, 0.01)
    adj = np.maximum(adj, adj.T).astype(np.float32) + np.eye(nodes, dtype=np.float32)
    adj = adj / adj.sum(1, keepdims=True)
    x = np.random.rand(nodes, features).astype(np.float32)
    x[np.arange(nodes), labels] += 0.5
    rows, columns = adj.nonzero()
    indices = torch.from_numpy(np.vstack((rows, columns)).astype(np.int64))
    values = torch.from_numpy(adj[rows, columns])
    adj = torch.sparse.FloatTensor(indices, values, torch.Size(adj.shape))
    return adj, torch.FloatTensor(x), torch.LongTensor(labels)


class GraphConvolution(Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        self.bias = Parameter(torch.FloatTensor(out_features))
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        return torch.spmm(adj, support) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


adj, features, labels = load_data()
idx_train, idx_val, idx_test = torch.arange(60), torch.arange(60, 90), torch.LongTensor(range(90, 120))
model = GCN(features.shape[1], 16, labels.max().item() + 1, 0.5)
optimizer = optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
if cuda:
    model.cuda()
    features = features.cuda()
    adj = adj.cuda()
    labels = labels.cuda()
    idx_train = idx_train.cuda()
    idx_val = idx_val.cuda()
    idx_test = idx_test.cuda()

losses, accuracies = [], []
for _epoch in range(20):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(features, adj)
    losses += [loss_train.item(), F.nll_loss(output[idx_val], labels[idx_val]).item()]
    accuracies.append(accuracy(output[idx_val], labels[idx_val]).item())

model.eval()
with torch.no_grad():
    output = model(features, adj)
    degree = torch.sparse.sum(adj.coalesce(), dim=1).to_dense()
    csr = adj.coalesce().to_sparse_csr()
    again = csr @ torch.relu(csr @ (features @ model.gc1.weight) + model.gc1.bias) @ model.gc2.weight + model.gc2.bias
assert torch.allclose(F.log_softmax(again, 1), output, atol=1e-5)
assert torch.allclose(degree, torch.ones_like(degree), atol=1e-5)
print(f"test: loss {F.nll_loss(output[idx_test], labels[idx_test]).item():.4f}", end=", ")
print(f"accuracy {accuracy(output[idx_test], labels[idx_test]).item():.4f}")
devices = sorted({str(parameter.device) for parameter in model.parameters()})
values = losses + accuracies + output.cpu().flatten().tolist()[:16]
print("RESULT", json.dumps({"steps": 20, "devices": devices, "values": values}))
