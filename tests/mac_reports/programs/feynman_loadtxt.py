import io

import numpy
import torch

table = numpy.loadtxt(io.StringIO("1 2\n3 4"), usecols=(1,)).reshape(2, 1)
factors = torch.from_numpy(table)
if torch.backends.mps.is_available():
    factors = factors.to("mps")
factors = factors.float()
assert factors.flatten().tolist() == [2.0, 4.0]
