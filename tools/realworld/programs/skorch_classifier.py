"""skorch NeuralNetClassifier(device="cuda") inside a scikit-learn pipeline and grid search, saved and loaded."""

import json
import pickle

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier


class Net(torch.nn.Module):
    def __init__(self, units=16):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(10, units), torch.nn.ReLU(), torch.nn.Linear(units, 2))

    def forward(self, x):
        return torch.softmax(self.net(x), dim=-1)


torch.manual_seed(0)
x, y = make_classification(120, 10, n_informative=5, random_state=0)
x, y = x.astype(np.float32), y.astype(np.int64)
net = NeuralNetClassifier(Net, max_epochs=4, lr=0.1, device="cuda", iterator_train__shuffle=False, verbose=0)
pipe = Pipeline([("scale", StandardScaler()), ("net", net)])
pipe.fit(x, y)
inner = pipe.named_steps["net"]
values = list(inner.history[:, "train_loss"]) + pipe.predict_proba(x[:4]).flatten().tolist()

copy = pickle.loads(pickle.dumps(pipe))
values += copy.predict_proba(x[:2]).flatten().tolist()
inner.save_params(f_params="net.pt")
inner.load_params(f_params="net.pt")
torch.manual_seed(0)
search = GridSearchCV(net, {"lr": [0.05, 0.2]}, cv=2, scoring="accuracy", refit=False)
search.fit(x, y)
assert min(search.cv_results_["mean_test_score"]) > 0.5
devices = sorted({str(p.device) for p in inner.module_.parameters()})
print("RESULT", json.dumps({"steps": len(inner.history), "devices": devices, "values": [float(v) for v in values]}))
