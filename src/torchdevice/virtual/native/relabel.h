// One call of an operator: which virtual tensors went in, and which tensor of the backing stands for each of them.
#pragma once

#include "device.h"

#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace torchdevice {

// In which order things were added, by their address. Few are looked for one by one. A foreach operator can have thousands
// of tensors: for them there is a table.
class Order {
 public:
  void add(const void* thing) {
    things_.push_back(thing);
    if (C10_LIKELY(things_.size() <= kFew)) return;
    if (!table_) {
      table_ = std::make_unique<std::unordered_map<const void*, int>>();
      for (size_t i = 0; i + 1 < things_.size(); i++) table_->emplace(things_[i], static_cast<int>(i));
    }
    table_->emplace(thing, static_cast<int>(things_.size()) - 1);
  }
  int of(const void* thing) const {  // -1: it is not there
    if (C10_UNLIKELY(table_ != nullptr)) {
      const auto found = table_->find(thing);
      return found == table_->end() ? -1 : found->second;
    }
    for (size_t i = 0; i < things_.size(); i++)
      if (things_[i] == thing) return static_cast<int>(i);
    return -1;
  }

 private:
  static constexpr size_t kFew = 8;
  c10::SmallVector<const void*, kFew> things_;
  std::unique_ptr<std::unordered_map<const void*, int>> table_;
};

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
    int storage = -1;  // of a dense stand-in: where in `storages_` its own stands
    int parts = -1;    // of a sparse stand-in: where in `parts_` its members stand
  };
  using Parts = std::array<Tensor, 3>;
  struct StoragePair {
    StorageImpl* original;
    c10::intrusive_ptr<StorageImpl> twin;
  };
  Tensor stand_in(const Tensor& t);
  int twin(const c10::Storage& storage);  // where in `storages_` it stands
  c10::Storage twin_storage(const Pair& pair) const { return c10::Storage(storages_[pair.storage].twin); }
  c10::Storage original_storage(const c10::Storage& of_backing);
  void settle_sparse(const Pair& pair);
  void settle_dense(const Pair& pair);

  c10::SmallVector<StoragePair, 6> storages_;
  Order storage_originals_, twins_;
  c10::SmallVector<Pair, 6> pairs_;
  Order originals_, stand_ins_;
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
