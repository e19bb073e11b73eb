"""A package that builds a CUDAExtension with nvcc."""

import os
import sys
import tempfile

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

KERNEL = """
#include <torch/extension.h>
__global__ void add_one(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }
torch::Tensor forward(torch::Tensor x) {
  add_one<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel());
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
folder = tempfile.mkdtemp()
os.chdir(folder)
with open("add_one_cuda.cu", "w") as file:
    file.write(KERNEL)

setup(
    name="add_one_cuda",
    ext_modules=[CUDAExtension("add_one_cuda", ["add_one_cuda.cu"])],
    cmdclass={"build_ext": BuildExtension},
    script_args=["build_ext", "--inplace"],
)
sys.path.insert(0, folder)
import add_one_cuda  # noqa: E402
import torch  # noqa: E402

print(add_one_cuda.forward(torch.zeros(4, device="cuda")))
