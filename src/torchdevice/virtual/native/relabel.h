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

// Places of things by their address. Few are looked for one by one; for many there is a table.
class Places {
 public:
  void add(const void* thing, int place) {
    things_.push_back({thing, place});
    if (table_) table_->emplace(thing, place);
  }
  int of(const void* thing) {  // -1: it is not there
    if (C10_UNLIKELY(things_.size() > kFew)) {
      if (!table_) table_ = std::make_unique<Table>(things_.begin(), things_.end());
      const auto found = table_->find(thing);
      return found == table_->end() ? -1 : found->second;
    }
    for (const auto& each : things_)
      if (each.first == thing) return each.second;
    return -1;
  }

 private:
  static constexpr size_t kFew = 8;
  using Table = std::unordered_map<const void*, int>;
  c10::SmallVector<std::pair<const void*, int>, kFew> things_;
  std::unique_ptr<Table> table_;
};

constexpr uint32_t kWritten = 1u << 31;  // beside the flags of an operator: it writes to this argument

class Call {
 public:
  Call() = default;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // The stand-in of an argument on the backing. A tensor of another device is noted as the call's `misfit`.
  Tensor enter(const Tensor& t, const char* argument, uint32_t flags);
  // The same for a virtual tensor, without checks.
  Tensor stand_in(const Tensor& t, bool written = false);
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
    int next = -1;     // in `pairs_`: another tensor of that storage
    int parts = -1;    // of a sparse stand-in: where in `parts_` its members stand
  };
  using Parts = std::array<Tensor, 3>;
  struct StoragePair {
    StorageImpl* original;
    c10::intrusive_ptr<StorageImpl> twin;
    Twin* kept = nullptr;  // where the twin is from, and goes back to
    int pair = -1;         // in `pairs_`: a tensor of that storage
  };
  Tensor dense_stand_in(const Tensor& t, Pair& pair, bool written);
  void forget(StoragePair& s);
  void give_back(StoragePair& s);
  int separate(StorageImpl* original);  // from those that share its memory until one of them writes; its place, or -1
  int twin(const c10::Storage& storage, bool written);  // where in `storages_` it stands
  c10::Storage original_storage(const c10::Storage& of_backing);
  void settle_sparse(const Pair& pair);
  void settle_dense(const Pair& pair);

  c10::SmallVector<StoragePair, 6> storages_;
  Places own_;  // originals whose twin was made for this call
  Places twins_;
  c10::SmallVector<Pair, 6> pairs_;
  Places stand_ins_, sparse_;
  c10::SmallVector<c10::Storage, 1> replaced_;  // what tensors had before the kernel gave them another storage
  std::vector<Parts> parts_;  // members of sparse stand-ins, as they were made
  c10::SmallVector<StorageImpl*, 4> foreign_;       // storages of tensors elsewhere, which belong to the caller
  c10::SmallVector<c10::TensorImpl*, 4> foreign_tensors_;
  c10::SmallVector<std::pair<StorageImpl*, c10::Storage>, 2> adopted_;  // storages of the backing that live on elsewhere
};

// The cheap form of a call, for operators whose results are new and whose arguments keep their geometry. It lends the twins
// of dense tensors, as they are kept with their memory. What else comes needs a `Call`.
class Loans {
 public:
  explicit Loans(bool numbers_welcome) : numbers_welcome_(numbers_welcome) {}
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;
  // The stand-in of an argument, as long as this lives. Null: a `Call` is needed.
  const Tensor* take(const Tensor& t, bool written);
  std::optional<at::TensorList> take(at::TensorList list, bool written);
  // Raises if the kernel gave what it wrote to another geometry or memory.
  void check_written() const;
  // The virtual form of a result. Before the loans are given back: it may be one of them.
  Tensor leave(Tensor&& result);
  const std::optional<Device>& device() const { return device_; }

 private:
  struct Loan {
    Twin* kept;
    StorageImpl* original;
    const c10::TensorImpl* written;  // null: it is only read
    Tensor* listed;                  // where in a list the stand-in is; null: it stays with the twin
  };
  static constexpr int kViews = 4;
  const bool numbers_welcome_;
  std::optional<Device> device_;
  c10::SmallVector<Loan, 8> loans_;
  std::array<Tensor, kViews> views_;  // stand-ins of further tensors of a storage that is lent
  int views_taken_ = 0;
  c10::SmallVector<std::vector<Tensor>, 4> lists_;
  std::optional<Call> others_;  // for results that are neither new nor lent
};

template <class F>
void each_tensor(const c10::IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList()) {
    for (const Tensor& t : v.toTensorVector()) f(t);
  }
}

}  // namespace torchdevice
