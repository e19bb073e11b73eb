// One call of an operator: the virtual tensors among its arguments, and the tensor of the backing for each of them.
#pragma once

#include "device.h"

#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace torchdevice {

// Indices of objects by their address. A few are searched linearly; for many there is a table.
class Places {
 public:
  void add(const void* thing, int place) {
    things_.push_back({thing, place});
    if (table_) table_->emplace(thing, place);
  }
  int of(const void* thing) {  // -1: not found
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

constexpr uint32_t kWritten = 1u << 31;  // in addition to the flags of an operator: it writes to this argument

class Call {
 public:
  Call() = default;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // The stand-in of an argument on the backing. A tensor of another device is stored as the call's `misfit`.
  Tensor enter(const Tensor& t, const char* argument, uint32_t flags);
  // The stand-in of a virtual tensor, without checks.
  Tensor stand_in(const Tensor& t, bool written = false);
  // The virtual form of a result of a kernel of the backing.
  Tensor leave(const Tensor& t);
  // Applies the changes of the kernel to the stand-ins (new size, new storage, new content) to the originals.
  void settle();

  std::optional<Device> device;   // the virtual device of this call
  Tensor misfit;                  // the first tensor on another device
  const char* misfit_name = "";
  bool to_host = false;           // the caller requested a result on the host
  bool keep_requires_grad = false;  // stand-ins keep requires_grad: some CSR kernels check it

 private:
  struct Pair {
    Tensor original, stand_in;
    int storage = -1;  // of a dense stand-in: the index of its storage in `storages_`
    int next = -1;     // in `pairs_`: another tensor of that storage
    int parts = -1;    // of a sparse stand-in: the index of its members in `parts_`
  };
  using Parts = std::array<Tensor, 3>;
  struct StoragePair {
    StorageImpl* original;
    c10::intrusive_ptr<StorageImpl> twin;
    Twin* kept = nullptr;  // the cache that the twin belongs to
    int pair = -1;         // in `pairs_`: a tensor of that storage
  };
  Tensor dense_stand_in(const Tensor& t, Pair& pair, bool written);
  void forget(StoragePair& s);
  void give_back(StoragePair& s);
  int separate(StorageImpl* original);  // from those that share its memory until the first write; its index, or -1
  int twin(const c10::Storage& storage, bool written);  // its index in `storages_`
  c10::Storage original_storage(const c10::Storage& of_backing);
  void settle_sparse(const Pair& pair);
  void settle_dense(const Pair& pair);

  c10::SmallVector<StoragePair, 6> storages_;
  Places own_;  // originals whose twin was created for this call
  Places twins_;
  c10::SmallVector<Pair, 6> pairs_;
  Places stand_ins_, sparse_;
  c10::SmallVector<c10::Storage, 1> replaced_;  // the storages of tensors before the kernel replaced them
  std::vector<Parts> parts_;  // members of sparse stand-ins, as created
  c10::SmallVector<StorageImpl*, 4> foreign_;       // storages of tensors on other devices, which belong to the caller
  c10::SmallVector<c10::TensorImpl*, 4> foreign_tensors_;
  c10::SmallVector<std::pair<StorageImpl*, c10::Storage>, 2> adopted_;  // storages of the backing that are used elsewhere
};

// The fast form of a call, for operators whose results are new and whose arguments keep their geometry. It lends the
// cached twins of dense tensors. All other arguments need a `Call`.
class Loans {
 public:
  explicit Loans(bool numbers_welcome) : numbers_welcome_(numbers_welcome) {}
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;
  // The stand-in of an argument, valid during the lifetime of this object. Null: a `Call` is needed.
  const Tensor* take(const Tensor& t, bool written);
  std::optional<at::TensorList> take(at::TensorList list, bool written);
  // Raises if the kernel changed the geometry or the memory of an argument that it wrote.
  void check_written() const;
  // The virtual form of a result. Called before the loans are returned, because the result may be one of them.
  Tensor leave(Tensor&& result);
  const std::optional<Device>& device() const { return device_; }

 private:
  struct Loan {
    Twin* kept;
    StorageImpl* original;
    const c10::TensorImpl* written;  // null: it is only read
    Tensor* listed;                  // the address of the stand-in in a list; null: it stays with the twin
  };
  static constexpr int kViews = 4;
  const bool numbers_welcome_;
  std::optional<Device> device_;
  c10::SmallVector<Loan, 8> loans_;
  c10::SmallVector<Tensor, kViews> views_;  // stand-ins of further tensors of a lent storage, with stable addresses
  c10::SmallVector<std::vector<Tensor>, 4> lists_;
  std::optional<Call> others_;  // for results that are neither new nor lent
};

// Starts to load the memory that `Loans::take` reads. Its atomic operation would otherwise make the processor wait for
// one argument after the other. Another thread may have borrowed the twin: its addresses are not dereferenced.
inline void expect(const Tensor& t) {
  const c10::Storage& storage = t.unsafeGetTensorImpl()->unsafe_storage();
  if (!storage) return;
  const c10::DataPtr& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &free_block) return;
  const auto* kept = static_cast<const Twin*>(data.get_context());
  const auto* shell = reinterpret_cast<const char*>(kept->shell.unsafeGetTensorImpl());
  __builtin_prefetch(kept->storage.get());
  for (size_t at = 0; at < sizeof(c10::TensorImpl); at += kCacheLine) __builtin_prefetch(shell + at);
}

template <class F>
void each_tensor(const c10::IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList()) {
    for (const Tensor& t : v.toTensorVector()) f(t);
  } else if (v.isList()) {  // Tensor[][]: collectives
    for (const c10::IValue& inner : v.toListRef())
      if (inner.isTensorList()) each_tensor(inner, f);
  }
}

}  // namespace torchdevice
