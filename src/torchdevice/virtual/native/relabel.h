// One call of an operator: which virtual tensors went in, and which tensor of the backing stands for each of them.
#pragma once

#include "device.h"

#include <c10/util/SmallVector.h>

#include <array>
#include <optional>
#include <vector>

namespace torchdevice {

class Call {
 public:
  // The stand-in of an argument on the backing. A tensor of another device is noted as the call's `misfit`.
  Tensor enter(const Tensor& t, const char* argument, uint32_t flags);
  // The virtual form of what a kernel of the backing returned.
  Tensor leave(const Tensor& t);
  // Carries what the kernel did to its stand-ins (resized, re-seated, re-filled) back to the originals.
  void settle();

  std::optional<Device> device;   // the virtual device of this call
  Tensor misfit;                  // the first tensor that is elsewhere
  const char* misfit_name = "";
  bool to_host = false;           // the caller asked for a result on the host
  bool keep_requires_grad = false;  // stand-ins say whether gradients are wanted: some CSR kernels ask

 private:
  struct Pair {
    Tensor original, stand_in;
    int parts = -1;  // of a sparse stand-in: where in `parts_` its members stand
  };
  using Parts = std::array<Tensor, 3>;
  struct StoragePair {
    StorageImpl* original;
    c10::intrusive_ptr<StorageImpl> twin;
  };
  Tensor stand_in(const Tensor& t);
  c10::Storage twin(const c10::Storage& storage);
  c10::Storage original_storage(const c10::Storage& of_backing);
  void settle_sparse(const Pair& pair);
  void settle_dense(const Pair& pair);

  c10::SmallVector<StoragePair, 6> storages_;
  c10::SmallVector<Pair, 6> pairs_;
  std::vector<Parts> parts_;  // members of sparse stand-ins, as they were made
  c10::SmallVector<StorageImpl*, 4> foreign_;       // storages of tensors elsewhere, which belong to the caller
  c10::SmallVector<c10::TensorImpl*, 4> foreign_tensors_;
  c10::SmallVector<std::pair<StorageImpl*, c10::Storage>, 2> adopted_;  // storages of the backing that live on elsewhere
};

template <class F>
void each_tensor(const c10::IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList()) {
    for (const Tensor& t : v.toTensorVector()) f(t);
  }
}

// A tensor of the backing over the same bytes, for kernels that handle one dense tensor.
Tensor backing_alias(const Tensor& t);

}  // namespace torchdevice
