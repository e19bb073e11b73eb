// The C functions that Python calls through ctypes. An int result of 1 means failure: td_error() then has the message.
// No Python symbol is used here, so one binary serves every Python of a torch version.
#include "device.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <limits>

#define API extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string error, text;
bool installed = false;

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error& e) {
    error = e.what_without_backtrace();
  } catch (const std::exception& e) {
    error = e.what();
  } catch (...) {
    error = "an unknown C++ exception";
  }
  return 1;
}

// What comes in through ctypes is checked here, before it is narrowed or followed. A DeviceIndex has eight bits: what is
// too large for them becomes a number that no device has, and gets the message of whoever looks it up.
torchdevice::DeviceIndex index(int device) {
  return static_cast<torchdevice::DeviceIndex>(std::clamp(device, -1, torchdevice::kMaxDevices));
}

template <class T>
T* given(T* pointer, const char* what) {
  TORCH_CHECK(pointer != nullptr, "no ", what, " was given");
  return pointer;
}

// One bit is kept for "no such device", in td_limit.
size_t limit_of(uint64_t bytes) {
  TORCH_CHECK(bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "no device has ", bytes, " bytes");
  return bytes;
}

torchdevice::StorageImpl* storage_at(void* pointer, torchdevice::DeviceType type) {
  auto* storage = static_cast<torchdevice::StorageImpl*>(given(pointer, "storage"));
  TORCH_CHECK(storage->device_type() == type, "a storage on ", type, " was expected, not one on ", storage->device());
  return storage;
}

c10::BackendComponent backend_of(torchdevice::DeviceType type) {
  switch (type) {
    case torchdevice::DeviceType::CUDA:
      return c10::BackendComponent::CUDABit;
    case torchdevice::DeviceType::XPU:
      return c10::BackendComponent::XPUBit;
    case torchdevice::DeviceType::MPS:
      return c10::BackendComponent::MPSBit;
    default:
      TORCH_CHECK(false, "no virtual device of type ", type);
  }
}

// The order in which Python numbers the functionalities; see library.py.
torchdevice::DispatchKey functionality(int number) {
  using torchdevice::DispatchKey;
  static const DispatchKey keys[] = {
      DispatchKey::Dense, DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::Quantized, DispatchKey::NestedTensor};
  TORCH_CHECK(number >= 0 && number < 5, "no functionality ", number);
  return keys[number];
}

// torch warns when a kernel of its own is overridden, which is what we are here for.
struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

torch::Library& library(const char* name_space, torchdevice::DispatchKey key) {
  // Kept for the life of the process: a destroyed Library takes its registrations back.
  return *new torch::Library(torch::Library::IMPL, name_space, std::make_optional(key), __FILE__, __LINE__);
}

}  // namespace

using namespace torchdevice;

API const char* td_error() { return error.c_str(); }

API int td_init(const char* device, int count, uint64_t denied_dtypes, uint64_t limit, uint64_t capacity) {
  return guarded([&] {
    TORCH_CHECK(count > 0 && count <= kMaxDevices, "between 1 and ", kMaxDevices, " devices can be made, not ", count);
    TORCH_CHECK(!installed, "this process has a virtual device already");
    const auto type = Device(std::string(given(device, "device"))).type();
    config.backend = backend_of(type);
    config.type = type;
    installed = true;
    config.count = count;
    config.denied_dtypes = denied_dtypes;
    for (int i = 0; i < count; i++) usage(index(i)).limit = limit_of(limit);
    config.capacity = capacity;
    install_guard();
    install_allocators();
    install_hooks();
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    register_native_kernels();
  });
}

// `name` with its namespace and overload, as the dispatcher writes it: aten::add.Tensor
API int td_register(const char* name, int kind, uint32_t flags, uint64_t denied_dtypes) {
  return guarded([&] {
    const std::string full(given(name, "name"));
    const auto colon = full.find("::");
    TORCH_CHECK(installed && colon != std::string::npos, "no operator can be registered as ", full);
    auto* record = make_record(full, flags, denied_dtypes, functionality(kind));
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    library(full.substr(0, colon).c_str(), config.key(functionality(kind)))
        .impl(full.substr(colon + 2).c_str(), boxed_kernel(record, functionality(kind)));
  });
}

API int td_guard_dtypes(const char* name, uint64_t denied_dtypes) {
  return guarded([&] {
    TORCH_CHECK(installed, "this process has no virtual device");
    auto* record = make_record(std::string("aten::") + given(name, "name"), 0, denied_dtypes);
    const auto autograd = c10::toRuntimePerBackendFunctionalityKey(DispatchKey::AutogradFunctionality, config.backend);
    for (const auto key : {config.key(), autograd}) library("aten", key).impl(name, dtype_guard(record));
  });
}

API int td_fallback(int kind, uint32_t flags) {
  return guarded([&] {
    TORCH_CHECK(installed, "this process has no virtual device");
    library("_", config.key(functionality(kind))).fallback(boxed_fallback(flags, functionality(kind)));
  });
}

API int td_repair_autograd() { return repair_autograd_queues() ? 1 : 0; }
API int td_autograd_threads_run() { return autograd_threads_run() ? 1 : 0; }
API int td_default_generators(int yes) {
  hand_out_default_generators(yes != 0);
  return 0;
}

// "name \t calls \t denied" a line; valid until the next call on this thread.
API const char* td_counts() {
  text = dump_records();
  return text.c_str();
}
API int td_reset_counts() {
  reset_records();
  return 0;
}

API int td_get_device() { return current_device(); }
API int td_set_device(int device) {
  return guarded([&] { set_current_device(index(device)); });
}

// -1: there is no such device.
API int64_t td_current_stream(int device) {
  int64_t id = -1;
  guarded([&] { id = current_stream(index(device)).id(); });
  return id;
}
API int td_set_stream(int64_t id, int device) {
  return guarded([&] {
    TORCH_CHECK(id >= 0, "no stream ", id);
    set_current_stream(c10::Stream(c10::Stream::UNSAFE, Device(config.type, index(device)), id));
  });
}

// Not a number: one of them is no event, or not any more.
API double td_elapsed(int64_t from, int64_t to) {
  double milliseconds = std::numeric_limits<double>::quiet_NaN();
  guarded([&] { milliseconds = event_milliseconds(to) - event_milliseconds(from); });
  return milliseconds;
}

// current, peak, allocated, freed of bytes, then of blocks; then the number of refused allocations.
API int td_usage(int device, int64_t* out) {
  return guarded([&] {
    const Usage& u = usage(index(device));
    const int64_t values[] = {u.bytes,  u.bytes_peak,  u.bytes_allocated,  u.bytes_freed, u.blocks,
                              u.blocks_peak, u.blocks_allocated, u.blocks_freed, u.ooms};
    std::memcpy(given(out, "room for figures"), values, sizeof values);
  });
}
API int td_reset_peak(int device) {
  return guarded([&] { reset_peak(index(device)); });
}
API int td_reset_accumulated(int device) {
  return guarded([&] { reset_accumulated(index(device)); });
}
API int td_set_limit(int device, uint64_t bytes) {
  return guarded([&] { usage(index(device)).limit = limit_of(bytes); });
}
// All bits set: there is no such device.
API uint64_t td_limit(int device) {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  guarded([&] { bytes = usage(index(device)).limit; });
  return bytes;
}

// Puts the bytes of a physical storage (shared memory) under a virtual one; both are StorageImpl pointers.
API int td_adopt(void* virtual_storage, void* physical_storage) {
  return guarded([&] {
    auto* to = storage_at(virtual_storage, config.type);
    auto* from = storage_at(physical_storage, config.physical.type());
    c10::raw::intrusive_ptr::incref(from);
    c10::DataPtr shared(from->_mutable_data_ptr_no_checks().get(), from,
                        [](void* p) { c10::raw::intrusive_ptr::decref(static_cast<StorageImpl*>(p)); }, from->device());
    to->set_data_ptr_noswap(label(std::move(shared), from->nbytes(), to->device()));
    to->set_nbytes(from->nbytes());
  });
}

API int td_resize(void* virtual_storage, uint64_t bytes) {
  return guarded([&] {
    auto* storage = storage_at(virtual_storage, config.type);
    TORCH_CHECK(bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "no storage has ", bytes, " bytes");
    c10::DeviceGuard guard(storage->device());
    c10::DataPtr fresh = bytes ? virtual_allocator()->allocate(bytes) : c10::DataPtr(nullptr, storage->device());
    if (const auto kept = std::min<size_t>(bytes, storage->nbytes()))
      virtual_allocator()->copy_data(fresh.get(), storage->data(), kept);
    storage->set_data_ptr_noswap(std::move(fresh));
    storage->set_nbytes(bytes);
  });
}

API int td_capture_begin(int64_t* graph) {
  return guarded([&] {
    given(graph, "room for a number");  // before anything begins
    *graph = capture_begin();
  });
}
API int td_capture_end(int64_t graph) {
  return guarded([&] { capture_end(graph); });
}
API int td_capture_replay(int64_t graph) {
  return guarded([&] { capture_replay(graph); });
}
API int td_capture_drop(int64_t graph) {
  capture_drop(graph);
  return 0;
}
API int td_capturing() { return capturing() ? 1 : 0; }
