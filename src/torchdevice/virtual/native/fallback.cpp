// Operators that a device lacks, computed by the CPU: the kernel in the device's dispatcher slots.
//
// It is part of the library of virtual devices, and a separate library for real accelerators. Arguments are copied to
// the CPU and results to the device according to the schema of the operator: strides are kept, a storage that several
// arguments share is copied once, and written arguments are copied back into the caller's tensor. Cases that the schema
// does not describe (sparse layouts, random numbers, tensor subclasses) are passed to the kernel in Python below this
// one.
//
// Calls are counted by operator, dtypes and line of user code. Python is called only for a new line. No symbol of
// Python is linked: the functions that find the line are passed by address, so one binary works with every Python of a
// torch version.
#include "calls.h"
#include "fallback.h"
#include "forks.h"
#include "schemas.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/DimVector.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torchdevice::fallback {

ComputeInPlace compute_in_place = nullptr;
std::optional<c10::DeviceType> holder;

namespace {

using at::Tensor;
using c10::Device;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Stack = torch::jit::Stack;

thread_local std::string text;

// ------------------------------------------------------------------------------------------ the current line
// Functions of Python's C API. Frames and code objects are only passed to them.
struct Python {
  int (*ensure)();
  void (*release)(int);
  void* (*frame)();            // borrowed
  void* (*back)(void*);        // a new reference
  void* (*code)(void*);        // a new reference
  int (*instruction)(void*);   // of a frame; its line before Python 3.11
  void (*keep)(void*);
  void (*drop)(void*);
};
Python python{};

// One line at which an operator with certain dtypes fell back. Python reads it: see `Counter` in fallback/native.py.
struct Counter {
  int64_t calls = 0, nanoseconds = 0, bytes = 0;
};

struct Place {
  int row;
  uint64_t dtypes;
  const void* code;
  int instruction;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  size_t operator()(const Place& p) const {
    size_t hash = std::hash<const void*>()(p.code);
    for (const uint64_t each : {static_cast<uint64_t>(p.row), p.dtypes, static_cast<uint64_t>(p.instruction)})
      hash = (hash ^ each) * 0x9e3779b97f4a7c15ull;
    return hash;
  }
};

struct Ledger {
  std::mutex mutex;  // Python is never called while it is locked
  std::unordered_map<Place, Counter*, PlaceHash> places;
  std::deque<Counter> counters;  // stable addresses: Python may read an entry after its place was cleared
  std::vector<Counter*> unused;
  std::unordered_map<void*, bool> inner;  // by code object, to which a reference is held: whether a report skips this frame
};
Ledger& ledger() {
  static auto* one = outlives_forks<Ledger, &ledger>();
  return *one;
}
constexpr size_t kMostCodes = 20000;  // code that `exec` creates must not fill the memory

using IsInner = int (*)(void* code);
using Opened = void (*)(int row, uint64_t dtypes, Counter* counter);
IsInner is_inner = nullptr;
Opened opened = nullptr;

class WithPython {
 public:
  WithPython() : state_(python.ensure()) {}
  ~WithPython() { python.release(state_); }
  WithPython(const WithPython&) = delete;
  WithPython& operator=(const WithPython&) = delete;

 private:
  int state_;
};

bool belongs_to_user(void* code) {
  auto& known = ledger().inner;
  {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    if (const auto found = known.find(code); found != known.end()) return !found->second;
  }
  const bool inner = is_inner(code) != 0;
  std::unordered_map<void*, bool> let_go;
  {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    if (known.size() >= kMostCodes) known.swap(let_go);
    if (known.emplace(code, inner).second) python.keep(code);
  }
  for (const auto& each : let_go) python.drop(each.first);  // may run Python code, which may call this function again
  return !inner;
}

// The nearest frame of user code. If there is none (a thread of autograd), the code is null.
std::pair<const void*, int> user_line() {
  void* frame = python.frame();
  if (frame != nullptr) python.keep(frame);
  while (frame != nullptr) {
    void* code = python.code(frame);
    python.drop(code);  // its frame holds a reference
    if (belongs_to_user(code)) {
      const int instruction = python.instruction(frame);
      python.drop(frame);
      return {code, instruction};
    }
    void* next = python.back(frame);
    python.drop(frame);
    frame = next;
  }
  return {nullptr, 0};
}

Counter* unused_counter() {
  auto& unused = ledger().unused;
  if (unused.empty()) return &ledger().counters.emplace_back();
  Counter* counter = unused.back();
  unused.pop_back();
  return &(*counter = {});
}

void count(int row, uint64_t dtypes, int64_t nanoseconds, int64_t bytes) {
  WithPython held;
  const auto [code, instruction] = user_line();
  const Place place{row, dtypes, code, instruction};
  Counter* counter = nullptr;
  {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    auto& found = ledger().places[place];
    const bool is_new = found == nullptr;
    if (is_new) found = unused_counter();
    found->calls += 1;
    found->nanoseconds += nanoseconds;
    found->bytes += bytes;
    if (!is_new) return;
    counter = found;
  }
  opened(row, dtypes, counter);
}

// ------------------------------------------------------------------------------------------- the schema
struct Row {
  int number;
  std::vector<bool> is_out{}, is_written{};
  bool writes = false;          // to an argument that it also reads
  bool only_reads = true;
  std::vector<int> returned{};  // per result: the index of the argument that it is; -1: a new tensor
  int viewed = -1;              // the argument that results are views of
};

Row row_of(const c10::FunctionSchema& schema, int number) {
  Row row{number};
  std::map<c10::Symbol, int> by_alias;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto* alias = arguments[i].alias_info();
    const bool writes = is_written(schema, i);
    row.is_out.push_back(writes && arguments[i].is_out());
    row.is_written.push_back(writes && !arguments[i].is_out());
    row.writes |= row.is_written.back();
    row.only_reads &= !writes;
    if (alias != nullptr)
      for (const auto& label : alias->beforeSets()) by_alias[label] = static_cast<int>(i);
  }
  for (const auto& result : schema.returns()) {
    int source = -1;
    if (result.alias_info() != nullptr)
      for (const auto& label : result.alias_info()->beforeSets())
        if (const auto found = by_alias.find(label); source < 0 && found != by_alias.end()) source = found->second;
    if (source >= 0 && !row.is_out[source] && !row.is_written[source]) {
      row.viewed = source;
      source = -1;
    }
    row.returned.push_back(source);
  }
  return row;
}

// ------------------------------------------------------------------------------------------------ copies
c10::DeviceType target{};
std::map<c10::ScalarType, c10::ScalarType> narrower;  // by dtypes that the device lacks

// Sizes in which an expanded dimension, which has one value, counts once.
c10::DimVector sizes_once(const Tensor& t) {
  c10::DimVector sizes(t.sizes());
  for (int64_t i = 0; i < t.dim(); i++)
    if (t.stride(i) == 0) sizes[i] = std::min(sizes[i], int64_t{1});
  return sizes;
}
int64_t bytes_of(const Tensor& t) {
  const int64_t values = t.is_nested() ? t.numel() : c10::multiply_integers(sizes_once(t));
  return values * static_cast<int64_t>(t.element_size());
}
bool is_there(const Tensor& t) { return t.defined() && t.device().type() == target; }

template <class F>
void each_tensor(const IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList()) {
    for (const IValue& each : v.toListRef()) f(each.toTensor());
  } else if (v.isOptionalTensorList()) {
    for (const auto& each : v.toOptionalTensorVector())
      if (each && each->defined()) f(*each);
  }
}

// Pinned memory for the copies of small arguments. It is kept from call to call, because allocating pinned memory and
// freeing it with an event takes longer than the copy of a small tensor.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    if (!memory_) return;
    // An exception came before the copies had ended. The allocator would record an event, which fails if the exception
    // was that of a stream that is captured. The memory is never used again.
    if (running_) {
      memory_.unsafeReleaseStorageImpl();
      return;
    }
    // An operator has kept or resized an argument. It is now the owner.
    if (memory_.use_count() != 1 || memory_.nbytes() != kBytes) return;
    std::lock_guard<std::mutex> lock(unused().mutex);
    if (unused().memory.size() < kMost) unused().memory.push_back(std::move(memory_));
  }

  // An uninitialised tensor like `t` on the host, without gaps. Undefined: there is no space for it.
  Tensor like(const Tensor& t, c10::IntArrayRef strides) {
    const size_t bytes = t.nbytes();
    if (bytes > kBytes - used_) return {};
    if (!memory_) memory_ = get();
    constexpr DispatchKeySet kKeys(DispatchKey::CPU);
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(memory_), kKeys, t.dtype());
    impl->set_sizes_and_strides(t.sizes(), strides, static_cast<int64_t>(used_ / t.element_size()));
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    running_ = true;
    return Tensor(std::move(impl));
  }
  void has_arrived() { running_ = false; }
  bool may_hold(const Tensor& t) const {
    return memory_ && (!t.has_storage() || t.storage().unsafeGetStorageImpl() == memory_.unsafeGetStorageImpl());
  }

 private:
  static constexpr size_t kBytes = 1 << 20, kAlignment = 64, kMost = 8;
  struct Unused {
    std::mutex mutex;
    std::vector<c10::Storage> memory;
  };
  static Unused& unused() {
    static auto* one = outlives_forks<Unused, &Staging::unused>();
    return *one;
  }
  static c10::Storage get() {
    {
      std::lock_guard<std::mutex> lock(unused().mutex);
      if (auto& memory = unused().memory; !memory.empty()) {
        c10::Storage last = std::move(memory.back());
        memory.pop_back();
        return last;
      }
    }
    return at::empty({static_cast<int64_t>(kBytes)}, at::TensorOptions(at::kByte).pinned_memory(true)).storage();
  }

  c10::Storage memory_;
  size_t used_ = 0;
  bool running_ = false;
};

class Crossing {
 public:
  Crossing(const Row& row, Stack& stack, size_t base)
      : row_(row), stack_(stack), base_(base), originals_(stack.begin() + static_cast<long>(base), stack.end()) {
    share();
    for (size_t i = 0; i < originals_.size(); i++) stack[base + i] = enter(originals_[i], row.is_out[i]);
    arrive();
    given_.assign(stack.begin() + static_cast<long>(base), stack.end());
  }

  ~Crossing() {
    // The caller's stack outlives an exception. Without this, it would keep the memory of `staging_`.
    if (!left_ && stack_.size() > base_) stack_.resize(base_);
  }
  Crossing(const Crossing&) = delete;
  Crossing& operator=(const Crossing&) = delete;

  void leave(size_t from) {
    for (size_t i = 0; i < originals_.size(); i++)
      if (row_.is_out[i] || row_.is_written[i]) write_back(originals_[i], given_[i]);
    for (size_t i = 0; i < row_.returned.size(); i++) {
      IValue& result = stack_[from + i];
      if (row_.returned[i] >= 0)
        result = originals_[row_.returned[i]];
      else if (row_.viewed >= 0)
        result = as_view(result);
      else
        result = back(result);
    }
    left_ = true;
  }

  int64_t moved = 0;

 private:
  // Copies of several arguments into pinned memory are queued, and the host waits once. The memory of a Mac is that of
  // the host, so this has no advantage there.
  static bool can_stage() {
    const auto type = holder.value_or(target);
    return type == c10::DeviceType::CUDA || type == c10::DeviceType::XPU;
  }
  // CUDA has read unpinned memory when an asynchronous copy returns, and torch's allocator does not reuse pinned memory
  // before the copy has ended. The memory of `staging_` is reused at once, so the host waits for a copy from it.
  bool can_return_at_once(const Tensor& from) const {
    return holder.value_or(target) == c10::DeviceType::CUDA && !staging_.may_hold(from);
  }

  // A storage that several arguments share is copied completely and once: a write must be visible in all of them.
  void share() {
    std::vector<Tensor> strided;
    for (size_t i = 0; i < originals_.size(); i++)
      if (!row_.is_out[i])
        each_tensor(originals_[i], [&](const Tensor& t) {
          if (is_there(t)) strided.push_back(t);
        });
    for (size_t i = 0; i < strided.size(); i++) {
      const auto* storage = strided[i].storage().unsafeGetStorageImpl();
      if (shared_.count(storage) || strided[i].numel() == 0) continue;
      int64_t looked_at = bytes_of(strided[i]);
      bool several = false;
      for (size_t k = i + 1; k < strided.size(); k++) {
        if (strided[k].storage().unsafeGetStorageImpl() != storage || strided[k].numel() == 0) continue;
        several |= !strided[k].is_same(strided[i]);
        looked_at += bytes_of(strided[k]);
      }
      const auto size = static_cast<int64_t>(storage->nbytes());
      // A few rows of a large table are faster to copy separately.
      if (!several || (!row_.writes && size > 2 * looked_at)) continue;
      Tensor raw = at::empty({0}, strided[i].options().dtype(at::kByte));
      raw.set_(strided[i].storage(), 0, {size}, {1});
      shared_.emplace(storage, copy_once(raw));
    }
  }

  IValue enter(const IValue& v, bool is_out) {
    if (v.isTensor()) return tensor(v.toTensor(), is_out);
    if (v.isTensorList()) {
      c10::List<Tensor> list;
      for (const IValue& each : v.toListRef()) list.push_back(tensor(each.toTensor(), is_out));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const auto& each : v.toOptionalTensorVector())
        list.push_back(each ? std::optional<Tensor>(tensor(*each, is_out)) : std::nullopt);
      return list;
    }
    if (v.isDevice()) {  // a device that the caller names is the device of results, also if it is not the target
      const Device named = v.toDevice();
      if (!device_ || named.type() != device_->type() || named.has_index()) device_ = named;
      return named.type() == target ? Device(c10::kCPU) : named;
    }
    return v;
  }

  Tensor tensor(const Tensor& t, bool is_out) {
    if (!is_there(t)) return t;
    if (!device_ || (!device_->has_index() && device_->type() == target)) device_ = t.device();
    for (const auto& each : copies_)
      if (each.first.is_same(t)) return each.second;  // also a result that is an argument: kernels check for that
    const auto here = t.options().device(at::kCPU);
    if (is_out) return at::empty_strided(t.sizes(), t.strides(), here);
    copies_.emplace_back(t, copy(t));
    return copies_.back().second;
  }

  Tensor copy(const Tensor& t) {
    if (const auto found = shared_.find(t.storage().unsafeGetStorageImpl()); found != shared_.end()) {
      const Tensor& bytes = found->second;
      const auto offset = bytes.storage_offset() / static_cast<int64_t>(t.element_size()) + t.storage_offset();
      Tensor look = at::empty({0}, t.options().device(at::kCPU));
      look.set_(bytes.storage(), offset, t.sizes(), t.strides());
      return look;
    }
    const c10::DimVector sizes = sizes_once(t);
    if (sizes == t.sizes()) return copy_once(t);
    return copy_once(t.as_strided(sizes, t.strides())).as_strided(t.sizes(), t.strides());
  }

  // A copy with the same strides. It is complete after `arrive`.
  Tensor copy_once(const Tensor& t) {
    moved += bytes_of(t);
    const Tensor copied = can_stage() && (!staged_on_ || *staged_on_ == t.device())
        ? stage(t)
        : at::_to_copy(t, t.scalar_type(), t.layout(), at::kCPU, std::nullopt, false, std::nullopt);
    if (t.numel() < 2 || copied.strides() == t.strides()) return copied;
    int64_t span = 1;  // gaps are kept
    for (int64_t i = 0; i < t.dim(); i++) span += (t.size(i) - 1) * t.stride(i);
    spread_.emplace_back(at::empty({span}, t.options().device(at::kCPU)).as_strided(t.sizes(), t.strides()), copied);
    return spread_.back().first;
  }

  // A copy in pinned memory, which is queued.
  Tensor stage(const Tensor& t) {
    staged_on_ = t.device();
    const c10::DimVector strides =
        t.is_non_overlapping_and_dense() ? c10::DimVector(t.strides()) : c10::contiguous_strides(t.sizes());
    // An operator may resize what it writes to, within the size of the storage.
    Tensor staged = row_.only_reads ? staging_.like(t, strides) : Tensor();
    if (!staged.defined())
      staged = at::empty_strided(t.sizes(), strides, t.options().device(at::kCPU).pinned_memory(true));
    return staged.copy_(t, /*non_blocking=*/true);
  }

  void arrive() {
    if (staged_on_) c10::impl::VirtualGuardImpl(target).getStream(*staged_on_).synchronize();
    staging_.has_arrived();
    for (const auto& [to, from] : spread_) to.copy_(from);
  }

  void write_back(const IValue& original, const IValue& changed) {
    std::vector<Tensor> into, from;
    each_tensor(original, [&](const Tensor& t) { into.push_back(t); });
    each_tensor(changed, [&](const Tensor& t) { from.push_back(t); });
    for (size_t i = 0; i < into.size(); i++) {
      if (into[i].is_same(from[i])) continue;  // it was already on the CPU
      if (into[i].sizes() != from[i].sizes()) into[i].resize_(from[i].sizes());
      moved += bytes_of(from[i]);
      into[i].copy_(from[i], can_return_at_once(from[i]));
    }
  }

  Tensor back(const Tensor& t) {
    if (!t.defined() || !device_ || t.device().type() == device_->type() || t.is_quantized()) return t;
    moved += t.layout() == c10::kStrided ? bytes_of(t) : 0;
    return (device_->type() == target ? t.to(dtype_there(t.scalar_type())) : t).to(*device_, can_return_at_once(t));
  }
  IValue back(const IValue& v) {
    if (v.isTensor()) return back(v.toTensor());
    if (!v.isTensorList()) return v;
    c10::List<Tensor> list;
    for (const IValue& each : v.toListRef()) list.push_back(back(each.toTensor()));
    return list;
  }

  // The same view of the caller's tensor.
  Tensor as_view(const Tensor& t) {
    const Tensor& base = originals_[row_.viewed].toTensor();
    const int64_t shift = base.storage_offset() - given_[row_.viewed].toTensor().storage_offset();
    return base.as_strided(t.sizes(), t.strides(), t.storage_offset() + shift);
  }
  IValue as_view(const IValue& v) {
    if (v.isTensor()) return as_view(v.toTensor());
    if (!v.isTensorList()) return v;
    c10::List<Tensor> list;
    for (const IValue& each : v.toListRef()) list.push_back(as_view(each.toTensor()));
    return list;
  }

  const Row& row_;
  Stack& stack_;
  const size_t base_;
  bool left_ = false;
  Staging staging_;  // destroyed after the tensors below, which use its memory
  std::vector<IValue> originals_, given_;
  std::vector<std::pair<Tensor, Tensor>> copies_;
  std::vector<std::pair<Tensor, Tensor>> spread_;  // tensors with gaps, and their values without
  std::unordered_map<const c10::StorageImpl*, Tensor> shared_;  // bytes
  std::optional<Device> device_;
  std::optional<Device> staged_on_;  // the host must wait for its copies
};

// ------------------------------------------------------------------------------------------------------ the kernel
constexpr DispatchKeySet kMoreThanMemory(
    {DispatchKey::Python, DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});

// The schema is sufficient for these.
bool is_plain(const IValue& v) {
  bool plain = true;
  each_tensor(v, [&](const Tensor& t) {
    plain &= t.layout() == c10::kStrided && !t.is_quantized() && !t.is_nested() &&
        t.unsafeGetTensorImpl()->has_storage() && (t.key_set() & kMoreThanMemory).empty();
  });
  return plain;
}

template <class Below>
struct Kernel final : c10::OperatorKernel {
  Row row;
  Below below;
  Kernel(Row r, Below b) : row(std::move(r)), below(std::move(b)) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const auto& schema = op.schema();
    const size_t n = schema.arguments().size(), base = stack->size() - n;
    uint64_t dtypes = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
      const IValue& v = (*stack)[base + i];
      if (!v.isTensor() && !v.isList()) continue;
      if (C10_UNLIKELY(!is_plain(v))) return below.callBoxed(op, keys, stack);
      // One byte per tensor among the first arguments: the report distinguishes calls by it.
      if (v.isTensor() && v.toTensor().defined() && !schema.arguments()[i].kwarg_only())
        dtypes = dtypes << 8 | (static_cast<uint64_t>(v.toTensor().scalar_type()) + 1);  // 0: no tensor
      each_tensor(v, [&](const Tensor& t) { bytes += is_there(t) ? bytes_of(t) : 0; });
    }
    const auto started = std::chrono::steady_clock::now();
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      if (compute_in_place != nullptr) {
        compute_in_place(op, keys, stack);
        for (size_t i = 0; i < row.returned.size(); i++)
          if (row.returned[i] < 0 && row.viewed < 0)
            each_tensor((*stack)[stack->size() - row.returned.size() + i], [&](const Tensor& t) { bytes += bytes_of(t); });
      } else {
        Crossing crossing(row, *stack, base);
        op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
        crossing.leave(stack->size() - row.returned.size());
        bytes = crossing.moved;
      }
    }
    if (row.viewed >= 0) return;  // a view of an existing tensor is not counted
    const auto took = std::chrono::steady_clock::now() - started;
    count(row.number, dtypes, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count(), bytes);
  }
};

std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* all = new std::vector<c10::RegistrationHandleRAII>;
  return *all;
}

template <class Handle>
void cover(const Handle& op, DispatchKey key, int number) {
  if constexpr (tells_below<Handle>) {
    using Below = decltype(op.getComputedKernelForDispatchKey(key));
    Quiet quiet;  // torch warns if a kernel is overridden
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    registrations().push_back(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), key,
        c10::KernelFunction::makeFromBoxedFunctor(
            std::make_unique<Kernel<Below>>(row_of(op.schema(), number), op.getComputedKernelForDispatchKey(key))),
        std::nullopt, nullptr, "torchdevice: computed by the CPU"));
  }
}

}  // namespace

c10::ScalarType dtype_there(c10::ScalarType dtype) {
  const auto found = narrower.find(dtype);
  return found == narrower.end() ? dtype : found->second;
}

}  // namespace torchdevice::fallback

using namespace torchdevice::fallback;
using torchdevice::guarded;

// An int result of 1 means failure: tdf_error() then has the message.
API const char* tdf_error() { return torchdevice::error.c_str(); }

// Whether fallback kernels can be registered with this torch.
API int tdf_usable() { return tells_below<c10::OperatorHandle> ? 1 : 0; }

// `functions`: the addresses of Python's functions, in the order of the struct. `narrowed`: pairs of dtype names, then
// null.
API int tdf_begin(const char* device, void* const* functions, void* inner, void* new_place, const char* const* narrowed) {
  return guarded([&] {
    target = c10::Device(std::string(device)).type();
    std::memcpy(&python, functions, sizeof(python));
    is_inner = reinterpret_cast<IsInner>(inner);
    opened = reinterpret_cast<Opened>(new_place);
    narrower.clear();
    const auto& dtypes = c10::getStringToDtypeMap();
    for (; *narrowed != nullptr; narrowed += 2) narrower[dtypes.at(narrowed[0])] = dtypes.at(narrowed[1]);
  });
}

// Registers the kernel for an operator at a dispatch key. `row` is the name that Python receives.
API int tdf_cover(const char* name, const char* overload, const char* key, int row) {
  return guarded([&] {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    cover(op, c10::parseDispatchKey(key), row);
  });
}

API int tdf_end() {
  return guarded([&] { registrations().clear(); });
}

// The name of a dtype. Places contain its number.
API const char* tdf_dtype(int dtype) {
  text = c10::getDtypeNames(static_cast<c10::ScalarType>(dtype)).first;
  return text.c_str();
}

// Clears the places: a call at one of them is new again. The counters keep their addresses.
API void tdf_forget() {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().places.clear();
}

// This counter is no longer read.
API void tdf_drop(void* counter) {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().unused.push_back(static_cast<Counter*>(counter));
}
