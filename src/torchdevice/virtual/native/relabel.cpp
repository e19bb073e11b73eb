// Conversion between virtual tensors and tensors of the backing over the same bytes, for strided, sparse, nested and
// quantized layouts.
//
// A virtual storage cannot be used directly for a tensor of the backing, because views that a kernel creates take their
// device from the storage. Therefore each virtual storage has a *twin* StorageImpl. It is cached with the memory,
// without a reference to it, and lent to one call at a time; a concurrent call creates its own. If a kernel keeps its
// input (quantizers, asynchronous collectives), the twin gets a reference to the original and is no longer lent.
#include "relabel.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include <mutex>
#include <tuple>

namespace torchdevice {

namespace {

constexpr DispatchKeySet kLazyBits({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});

void drop_reference(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<StorageImpl*>(storage));
}

// A storage of `device` over the bytes of `of`, without a reference to them.
c10::intrusive_ptr<StorageImpl> lend(StorageImpl* of, Device device, c10::Allocator* allocator) {
  return c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), static_cast<int64_t>(of->nbytes()),
      c10::DataPtr(of->_mutable_data_ptr_no_checks().get(), device), allocator, of->resizable());
}
c10::intrusive_ptr<StorageImpl> lend_to_backing(StorageImpl* original) {
  return lend(original, backing.device(original->device().index()), backing.allocator());
}
bool is_lent(StorageImpl& storage) { return storage._mutable_data_ptr_no_checks().get_context() == nullptr; }

// Makes it hold a reference to the bytes of `of`.
void let_own(StorageImpl& storage, StorageImpl* of) {
  c10::raw::intrusive_ptr::incref(of);
  storage.set_data_ptr_noswap(
      c10::DataPtr(storage._mutable_data_ptr_no_checks().get(), of, &drop_reference, storage.device()));
}

// Converts a storage of the backing without other references to one of the virtual device.
void make_virtual(StorageImpl& storage, Device device) {
  auto& data = storage._mutable_data_ptr_no_checks();
  data = label(std::move(data), storage.nbytes(), device);
  storage.set_allocator(virtual_allocator());
}

Tensor dense_shell(const Tensor& t, c10::Storage storage, DispatchKeySet keys) {
  const auto* source = t.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys | (t.key_set() & kLazyBits), t.dtype());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (source->is_wrapped_number()) impl->set_wrapped_number(true);
  return Tensor(std::move(impl));
}

// The dispatch keys that distinguish a plain dense tensor from all others.
constexpr DispatchKeySet kTelling =
    DispatchKeySet(DispatchKeySet::RAW, c10::full_backend_mask) |
    DispatchKeySet({DispatchKey::Dense, DispatchKey::Quantized, DispatchKey::Sparse, DispatchKey::SparseCsr,
                    DispatchKey::NestedTensor}) |
    kLazyBits;
bool is_plain(const c10::TensorImpl* impl, DispatchKeySet keys) {
  return (impl->key_set() & kTelling) == keys && impl->unsafe_storage();
}

// `==` calls a function of the C library, which is slower than a few comparisons.
bool same(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (a[i] != b[i]) return false;
  return true;
}

// Whether a tensor over the twin equals the result of `dense_shell` for `t`.
bool fits(const Tensor& shell, const Tensor& t) {
  return shell.defined() && shell.dtype() == t.dtype() && (t.key_set() & kLazyBits).empty() &&
      !t.unsafeGetTensorImpl()->is_wrapped_number() && shell.storage_offset() == t.storage_offset() &&
      same(shell.sizes(), t.sizes()) && same(shell.strides(), t.strides());
}

// Whether such a tensor can be reused: there are no other references, and the kernel has not changed its metadata.
bool is_reusable(const Tensor& shell, const StorageImpl* twin) {
  const auto* impl = shell.unsafeGetTensorImpl();
  return shell.use_count() == 1 && is_plain(impl, backing.dense_keys()) &&
      impl->unsafe_storage().unsafeGetStorageImpl() == twin && !impl->is_wrapped_number() && impl->autograd_meta() == nullptr;
}

// The cached tensor gets the geometry of `t`.
C10_NOINLINE void refit(Twin& kept, const Tensor& t) {
  if (!kept.shell.defined() || t.unsafeGetTensorImpl()->is_wrapped_number()) {
    kept.shell = dense_shell(t, c10::Storage(kept.storage), backing.dense_keys());
    return;
  }
  auto* impl = kept.shell.unsafeGetTensorImpl();
  if (impl->dtype() != t.dtype()) impl->set_storage_and_dtype(c10::Storage(kept.storage), t.dtype());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
}

// The twin of memory that has none yet.
C10_NOINLINE void seat_anew(Twin& kept, StorageImpl* original) {
  kept.seated = true;
  if (!kept.storage) {
    kept.storage = lend_to_backing(original);
    return;
  }
  StorageImpl& storage = *kept.storage;
  const Device device = backing.device(original->device().index());
  const bool elsewhere = storage.device() != device;
  storage.set_data_ptr_noswap(c10::DataPtr(original->_mutable_data_ptr_no_checks().get(), device));
  if (elsewhere) kept.shell.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(kept.storage));  // and its device
}

// The twin refers to the current memory of the original.
void seat(Twin& kept, StorageImpl* original) {
  if (C10_UNLIKELY(!kept.storage || !kept.seated)) seat_anew(kept, original);
  StorageImpl& storage = *kept.storage;
  if (C10_UNLIKELY(storage.nbytes() != original->nbytes())) storage.set_nbytes(original->nbytes());
  if (C10_UNLIKELY(storage.resizable() != original->resizable())) storage.set_resizable(original->resizable());
}

Tensor quantized_shell(const Tensor& t, c10::Storage storage, DispatchKey key) {
  auto* source = static_cast<at::QTensorImpl*>(t.unsafeGetTensorImpl());
  auto impl = c10::make_intrusive<at::QTensorImpl>(std::move(storage), DispatchKeySet(key), t.dtype(), source->quantizer());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return Tensor(std::move(impl));
}

at::native::NestedTensorImpl* nested(const Tensor& t) {
  return static_cast<at::native::NestedTensorImpl*>(t.unsafeGetTensorImpl());
}
at::SparseTensorImpl* coo(const Tensor& t) { return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl()); }
at::SparseCsrTensorImpl* csr(const Tensor& t) { return static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl()); }

Tensor nested_shell(const Tensor& t, c10::Storage storage, DispatchKey key) {
  auto* source = nested(t);
  return Tensor(c10::make_intrusive<at::native::NestedTensorImpl>(
      std::move(storage), DispatchKeySet(key) | c10::autograd_nested, t.dtype(), source->get_nested_sizes(),
      source->get_nested_strides(), source->get_storage_offsets()));
}

Tensor coo_shell(const Tensor& t, const Tensor& indices, const Tensor& values, DispatchKey key) {
  auto* source = coo(t);
  c10::DeviceGuard guard(values.device());  // it gets the index of the current device
  auto impl = c10::make_intrusive<at::SparseTensorImpl>(DispatchKeySet(key), t.dtype());
  impl->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(source->coalesced());
  return Tensor(std::move(impl));
}

Tensor csr_shell(const Tensor& t, const Tensor& compressed, const Tensor& plain, const Tensor& values, DispatchKey key) {
  auto impl = c10::make_intrusive<at::SparseCsrTensorImpl>(DispatchKeySet(key), values.device(), t.layout(), t.dtype());
  impl->set_member_tensors(compressed, plain, values, t.sizes());
  return Tensor(std::move(impl));
}

bool is_csr(const Tensor& t) {
  const auto layout = t.layout();
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr || layout == c10::kSparseBsc;
}

}  // namespace

void retire(Twin& twin) {
  if (!twin.shell.defined() || twin.storage.use_count() != 2 || !is_reusable(twin.shell, twin.storage.get())) {
    twin.shell.reset();
    twin.storage.reset();
  }
  twin.seated = false;
}

// ------------------------------------------------------------------------------------------------------- going in
int Call::separate(StorageImpl* original) {
  c10::DeviceGuard guard(original->device());  // a copy is created on the current device
  original->mutable_data();
  const int known = own_.of(original);
  if (known < 0) return known;
  StorageImpl& twin = *storages_[known].twin;
  twin.set_data_ptr_noswap(c10::DataPtr(original->_mutable_data_ptr_no_checks().get(), twin.device()));
  let_own(twin, original);
  return known;
}

int Call::twin(const c10::Storage& storage, bool written) {
  auto* original = storage.unsafeGetStorageImpl();
  if (written && C10_UNLIKELY(c10::impl::cow::is_cow_data_ptr(original->_mutable_data_ptr_no_checks())))
    if (const int known = separate(original); known >= 0) return known;
  const int place = static_cast<int>(storages_.size());
  if (Twin* kept = twin_of(original->_mutable_data_ptr_no_checks())) {
    const void* holder = nullptr;
    if (kept->call.compare_exchange_strong(holder, this, std::memory_order_acquire)) {
      seat(*kept, original);
      kept->place = place;
      storages_.push_back({original, kept->storage, kept});
      twins_.add(kept->storage.get(), place);
      return place;
    }
    if (holder == this) return kept->place;
  }
  if (const int known = own_.of(original); known >= 0) return known;
  storages_.push_back({original, lend_to_backing(original)});
  let_own(*storages_.back().twin, original);
  own_.add(original, place);
  twins_.add(storages_.back().twin.get(), place);
  return place;
}

// Fills the pair, or returns the existing stand-in of the tensor.
Tensor Call::dense_stand_in(const Tensor& t, Pair& pair, bool written) {
  auto* impl = t.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl->has_storage(), "a tensor without storage cannot be used on the virtual ", config.type, " device");
  pair.storage = twin(impl->unsafe_storage(), written);
  StoragePair& s = storages_[pair.storage];
  for (int i = s.pair; i >= 0; i = pairs_[i].next)
    if (pairs_[i].original.is_same(t)) return pairs_[i].stand_in;
  pair.next = s.pair;
  if (C10_UNLIKELY(t.is_nested())) {
    for (const Tensor& meta :
         {nested(t)->get_nested_sizes(), nested(t)->get_nested_strides(), nested(t)->get_storage_offsets()})
      foreign_.push_back(meta.storage().unsafeGetStorageImpl());
    pair.stand_in = nested_shell(t, c10::Storage(s.twin), backing.key(DispatchKey::NestedTensor));
  } else if (C10_UNLIKELY(t.is_quantized())) {
    pair.stand_in = quantized_shell(t, c10::Storage(s.twin), backing.key(DispatchKey::Quantized));
  } else if (s.kept && fits(s.kept->shell, t)) {
    pair.stand_in = std::move(s.kept->shell);
  } else {
    pair.stand_in = dense_shell(t, c10::Storage(s.twin), backing.dense_keys());
  }
  s.pair = static_cast<int>(pairs_.size());
  return {};
}

Tensor Call::stand_in(const Tensor& t, bool written) {
  Pair pair;
  if (C10_LIKELY(t.layout() == c10::kStrided)) {
    if (Tensor known = dense_stand_in(t, pair, written); known.defined()) return known;
  } else {
    if (const int known = sparse_.of(t.unsafeGetTensorImpl()); known >= 0) return pairs_[known].stand_in;
    Parts parts;
    if (t.layout() == c10::kSparse) {
      parts = {stand_in(coo(t)->indices(), written), stand_in(coo(t)->values(), written)};
      pair.stand_in = coo_shell(t, parts[0], parts[1], backing.key(DispatchKey::Sparse));
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          is_csr(t), "layout ", t.layout(), " is not supported on the virtual ", config.type, " device");
      parts = {
          stand_in(csr(t)->compressed_indices(), written), stand_in(csr(t)->plain_indices(), written),
          stand_in(csr(t)->values(), written)};
      pair.stand_in = csr_shell(t, parts[0], parts[1], parts[2], backing.key(DispatchKey::SparseCsr));
    }
    sparse_.add(t.unsafeGetTensorImpl(), static_cast<int>(pairs_.size()));
    pair.parts = static_cast<int>(parts_.size());
    parts_.push_back(std::move(parts));
  }
  pair.original = t;
  if (C10_UNLIKELY(keep_requires_grad && t.requires_grad())) pair.stand_in.set_requires_grad(true);
  stand_ins_.add(pair.stand_in.unsafeGetTensorImpl(), static_cast<int>(pairs_.size()));
  pairs_.push_back(std::move(pair));
  return pairs_.back().stand_in;
}

Tensor Call::enter(const Tensor& t, const char* argument, uint32_t flags) {
  if (!t.defined()) return t;
  const auto elsewhere = [&] {
    if (!misfit.defined()) {
      misfit = t;
      misfit_name = argument;
    }
  };
  if (C10_LIKELY(is_virtual(t))) {
    if (!device)
      device = t.device();
    else if (*device != t.device() && (flags & kMovesNumbers) && t.dim() == 0)
      return stand_in(t.to(*device), flags & kWritten);
    else if (*device != t.device() && !(flags & kAnyDevice))
      elsewhere();
    return stand_in(t, flags & kWritten);
  }
  foreign_tensors_.push_back(t.unsafeGetTensorImpl());
  if (t.unsafeGetTensorImpl()->has_storage()) foreign_.push_back(t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  const bool welcome = t.device().is_cpu() && ((flags & kAnyDevice) || ((flags & (kNoDeviceCheck | kWritten)) == kNoDeviceCheck && t.dim() == 0));
  if (!welcome) elsewhere();
  return t;
}

// ----------------------------------------------------------------------------------------------------- coming out
c10::Storage Call::original_storage(const c10::Storage& of_backing) {
  auto* storage = of_backing.unsafeGetStorageImpl();
  if (const int known = twins_.of(storage); known >= 0)
    return c10::Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(storages_[known].original));
  if (storage->device().type() == config.type) return of_backing;  // it was just relabelled
  for (auto& a : adopted_)
    if (a.first == storage) return a.second;
  const Device target = device ? *device : Device(config.type, current_device());
  if (of_backing.use_count() > 1) {
    // There are other references (a second result, a quantizer's scales): they are not changed, and the bytes are
    // shared.
    c10::Storage shared(lend(storage, target, virtual_allocator()));
    let_own(*shared.unsafeGetStorageImpl(), storage);
    adopted_.emplace_back(storage, shared);
    return shared;
  }
  make_virtual(*storage, target);
  return of_backing;
}

Tensor Call::leave(const Tensor& t) {
  if (!t.defined() || !is_on_backing(t)) return t;
  if (t.use_count() > 1 || !foreign_tensors_.empty()) {  // otherwise it is new: stand-ins have further references here
    if (const int known = stand_ins_.of(t.unsafeGetTensorImpl()); known >= 0) return pairs_[known].original;
    for (auto* impl : foreign_tensors_)
      if (impl == t.unsafeGetTensorImpl()) return t;
  }
  if (to_host && backing.is_host()) return t;
  if (C10_UNLIKELY(t.layout() == c10::kSparse))
    return coo_shell(t, leave(coo(t)->indices()), leave(coo(t)->values()), config.key(DispatchKey::Sparse));
  if (C10_UNLIKELY(is_csr(t)))
    return csr_shell(t, leave(csr(t)->compressed_indices()), leave(csr(t)->plain_indices()), leave(csr(t)->values()),
                     config.key(DispatchKey::SparseCsr));
  if (!t.unsafeGetTensorImpl()->has_storage()) return t;
  const auto& storage = t.unsafeGetTensorImpl()->unsafe_storage();
  for (auto* s : foreign_)
    if (s == storage.unsafeGetStorageImpl()) return t;
  check_dtype(t.scalar_type());
  if (C10_UNLIKELY(t.is_nested())) return nested_shell(t, original_storage(storage), config.key(DispatchKey::NestedTensor));
  if (C10_UNLIKELY(t.is_quantized())) return quantized_shell(t, original_storage(storage), config.key(DispatchKey::Quantized));
  auto* impl = t.unsafeGetTensorImpl();
  if (C10_UNLIKELY(t.use_count() > 1 || !impl->allow_tensor_metadata_change()))
    return dense_shell(t, original_storage(storage), config.dense_keys());
  // Only the stack of the caller refers to it: the tensor itself becomes virtual.
  impl->set_storage_keep_dtype(original_storage(storage));
  impl->_change_backend_component_keys(impl->device());
  return t;
}

void Call::forget(StoragePair& s) {
  s.kept->shell.reset();
  s.kept->storage.reset();
  s.kept->call.store(nullptr, std::memory_order_release);
  s.kept = nullptr;
}

void Call::give_back(StoragePair& s) {
  Twin& kept = *s.kept;
  for (int i = s.pair; i >= 0; i = pairs_[i].next) {
    const Tensor shell = std::move(pairs_[i].stand_in);
    if (is_reusable(shell, s.twin.get())) kept.shell = shell;
  }
  const size_t holders = kept.shell.defined() ? 3 : 2;  // the other two are `s` and `kept`
  if (C10_LIKELY(s.twin.use_count() == holders && is_lent(*s.twin))) {
    s.twin.reset();
    kept.call.store(nullptr, std::memory_order_release);
    return;
  }
  if (is_lent(*s.twin)) let_own(*s.twin, s.original);  // a kernel keeps it
  forget(s);
}

Call::~Call() {
  for (StoragePair& s : storages_)
    if (s.kept) give_back(s);
}

// ---------------------------------------------------------------------------------------------------------- loans
// Flattened: the functions that these call are a few instructions each, and every operator calls these.
[[gnu::flatten]] const Tensor* Loans::take(const Tensor& t, bool written) {
  auto* impl = t.unsafeGetTensorImpl();
  if (!t.defined()) return &t;
  if (C10_UNLIKELY(!is_plain(impl, config.dense_keys())))
    return numbers_welcome_ && !written && impl->is_cpu() && impl->dim() == 0 ? &t : nullptr;
  if (!device_)
    device_ = impl->device();
  else if (C10_UNLIKELY(*device_ != impl->device()))
    return nullptr;
  auto* original = impl->unsafe_storage().unsafeGetStorageImpl();
  Twin* kept = twin_of(original->_mutable_data_ptr_no_checks());
  if (C10_UNLIKELY(!kept)) return nullptr;
  const void* holder = nullptr;
  if (C10_LIKELY(kept->call.compare_exchange_strong(holder, this, std::memory_order_acquire))) {
    loans_.push_back({kept, original, written ? impl : nullptr, nullptr});
    seat(*kept, original);
    if (C10_UNLIKELY(!fits(kept->shell, t))) refit(*kept, t);
    return &kept->shell;
  }
  if (holder != this || written) return nullptr;
  if (fits(kept->shell, t)) return &kept->shell;
  if (views_.size() == kViews) return nullptr;
  views_.push_back(dense_shell(t, c10::Storage(kept->storage), backing.dense_keys()));
  return &views_.back();
}

std::optional<at::TensorList> Loans::take(at::TensorList list, bool written) {
  lists_.emplace_back();
  std::vector<Tensor>& stand_ins = lists_.back();
  stand_ins.reserve(list.size());  // stable addresses
  loans_.reserve(loans_.size() + list.size());
  for (const Tensor& t : list) {
    const size_t before = loans_.size();
    const Tensor* found = take(t, written);
    if (C10_UNLIKELY(!found)) return std::nullopt;
    if (C10_LIKELY(loans_.size() > before)) {
      stand_ins.push_back(std::move(loans_.back().kept->shell));
      loans_.back().listed = &stand_ins.back();
    } else {
      stand_ins.push_back(*found);
    }
  }
  return at::TensorList(stand_ins);
}

[[gnu::flatten]] void Loans::check_written() const {
  for (const Loan& loan : loans_) {
    if (!loan.written) continue;
    const auto* shell = (loan.listed ? loan.listed : &loan.kept->shell)->unsafeGetTensorImpl();
    TORCH_INTERNAL_ASSERT(
        shell->unsafe_storage().unsafeGetStorageImpl() == loan.kept->storage.get() &&
            loan.kept->storage->data() == loan.original->data() && same(shell->sizes(), loan.written->sizes()) &&
            same(shell->strides(), loan.written->strides()),
        "an operator changed the geometry of what it only writes to");
  }
}

Tensor Loans::leave(Tensor&& t) {
  if (!t.defined()) return std::move(t);
  auto* impl = t.unsafeGetTensorImpl();
  if (C10_LIKELY(is_plain(impl, backing.dense_keys()))) {
    const c10::Storage& storage = impl->unsafe_storage();
    if (C10_LIKELY(t.use_count() == 1 && storage.use_count() == 1 && impl->allow_tensor_metadata_change())) {
      check_dtype(t.scalar_type());
      make_virtual(*storage.unsafeGetStorageImpl(), *device_);
      impl->set_storage_keep_dtype(storage);
      impl->_change_backend_component_keys(impl->device());
      return std::move(t);
    }
    for (const Loan& loan : loans_)
      if (loan.kept->storage.get() == storage.unsafeGetStorageImpl())
        return dense_shell(t, c10::Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(loan.original)), config.dense_keys());
  }
  if (!others_) others_.emplace().device = device_;
  const Tensor held = std::move(t);
  return others_->leave(held);
}

[[gnu::flatten]] Loans::~Loans() {
  views_.clear();
  for (const Loan& loan : loans_) {
    Twin& kept = *loan.kept;
    if (loan.listed) kept.shell = std::move(*loan.listed);
  }
  lists_.clear();
  for (const Loan& loan : loans_) {
    Twin& kept = *loan.kept;
    if (kept.shell.defined() && C10_UNLIKELY(!is_reusable(kept.shell, kept.storage.get()))) kept.shell.reset();
    const size_t holders = kept.shell.defined() ? 2 : 1;
    if (C10_UNLIKELY(kept.storage.use_count() != holders || !is_lent(*kept.storage))) {
      if (is_lent(*kept.storage)) let_own(*kept.storage, loan.original);  // a kernel keeps it
      kept.shell.reset();
      kept.storage.reset();
    }
    kept.call.store(nullptr, std::memory_order_release);
  }
}

// ------------------------------------------------------------------------------------------------------- settling
void Call::settle_sparse(const Pair& pair) {
  const Parts parts = parts_[pair.parts];
  if (pair.original.layout() == c10::kSparse) {
    auto *source = coo(pair.stand_in), *target = coo(pair.original);
    const bool same = source->indices().is_same(parts[0]) && source->values().is_same(parts[1]);
    if (same && source->coalesced() == target->coalesced() && source->sizes() == target->sizes()) return;
    const Tensor indices = leave(source->indices()), values = leave(source->values());
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(indices, values);
    target->set_coalesced(source->coalesced());
  } else {
    auto *source = csr(pair.stand_in), *target = csr(pair.original);
    const bool same = source->compressed_indices().is_same(parts[0]) && source->plain_indices().is_same(parts[1]) &&
        source->values().is_same(parts[2]);
    if (same && source->sizes() == target->sizes()) return;
    target->set_member_tensors(
        leave(source->compressed_indices()), leave(source->plain_indices()), leave(source->values()), source->sizes());
  }
}

void Call::settle_dense(const Pair& pair) {
  auto* to = pair.original.unsafeGetTensorImpl();
  auto* from = pair.stand_in.unsafeGetTensorImpl();
  if (C10_UNLIKELY(pair.original.is_nested())) return;
  if (C10_UNLIKELY(pair.original.is_quantized()))
    static_cast<at::QTensorImpl*>(to)->set_quantizer_(static_cast<at::QTensorImpl*>(from)->quantizer());
  const auto& seat = from->unsafe_storage();
  if (C10_UNLIKELY(seat.unsafeGetStorageImpl() != storages_[pair.storage].twin.get())) {
    replaced_.push_back(to->unsafe_storage());
    to->set_storage_keep_dtype(original_storage(seat));
  }
  if (C10_UNLIKELY(
          to->sizes() != from->sizes() || to->strides() != from->strides() || to->storage_offset() != from->storage_offset()))
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
}

void Call::settle() {
  for (auto& s : storages_) {
    auto* twin = s.twin.get();
    void* bytes = twin->_mutable_data_ptr_no_checks().get();
    if (C10_UNLIKELY(bytes != s.original->_mutable_data_ptr_no_checks().get())) {
      if (s.kept) forget(s);  // it is freed with the memory that the original had
      c10::DataPtr fresh = std::move(twin->_mutable_data_ptr_no_checks());
      s.original->set_data_ptr_noswap(label(std::move(fresh), twin->nbytes(), s.original->device()));
      twin->set_data_ptr_noswap(c10::DataPtr(s.original->_mutable_data_ptr_no_checks().get(), twin->device()));
      let_own(*twin, s.original);
    }
    if (C10_UNLIKELY(twin->nbytes() != s.original->nbytes())) s.original->set_nbytes(twin->nbytes());
  }
  for (const Pair& pair : pairs_) {
    if (C10_UNLIKELY(pair.parts >= 0))
      settle_sparse(pair);
    else
      settle_dense(pair);
  }
}

}  // namespace torchdevice
