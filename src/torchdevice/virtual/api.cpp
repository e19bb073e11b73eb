// The C functions that Python calls through ctypes. An int result of 1 means failure: td_error() then has the message.
// No Python symbol is used here, so one binary serves every Python of a torch version.
#include "device.h"

#include <c10/core/DeviceGuard.h>

#include <cstring>

#define API extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string error, text;

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error& e) {
    error = e.what_without_backtrace();
  } catch (const std::exception& e) {
    error = e.what();
  }
  return 1;
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
    config.type = Device(std::string(device)).type();
    config.backend = backend_of(config.type);
    config.count = count;
    config.denied_dtypes = denied_dtypes;
    config.limit = limit;
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
    const std::string full(name);
    const auto colon = full.find("::");
    auto* record = make_record(full, flags, denied_dtypes, functionality(kind));
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    library(full.substr(0, colon).c_str(), config.key(functionality(kind)))
        .impl(full.substr(colon + 2).c_str(), boxed_kernel(record, functionality(kind)));
  });
}

API int td_guard_dtypes(const char* name, uint64_t denied_dtypes) {
  return guarded([&] {
    auto* record = make_record(std::string("aten::") + name, 0, denied_dtypes);
    const auto autograd = c10::toRuntimePerBackendFunctionalityKey(DispatchKey::AutogradFunctionality, config.backend);
    for (const auto key : {config.key(), autograd}) library("aten", key).impl(name, dtype_guard(record));
  });
}

API int td_fallback(int kind, uint32_t flags) {
  return guarded([&] {
    library("_", config.key(functionality(kind))).fallback(boxed_fallback(flags, functionality(kind)));
  });
}

API int td_repair_autograd() { return repair_autograd_queues() ? 1 : 0; }
API int td_autograd_threads_run() { return autograd_threads_run() ? 1 : 0; }
API void td_default_generators(int yes) { hand_out_default_generators(yes != 0); }

// "name \t calls \t denied" a line; valid until the next call on this thread.
API const char* td_counts() {
  text = dump_records();
  return text.c_str();
}
API void td_reset_counts() { reset_records(); }

API int td_get_device() { return current_device(); }
API int td_set_device(int device) {
  return guarded([&] { set_current_device(static_cast<DeviceIndex>(device)); });
}

API int64_t td_current_stream(int device) { return current_stream(static_cast<DeviceIndex>(device)).id(); }
API int td_set_stream(int64_t id, int device) {
  return guarded([&] { set_current_stream(c10::Stream(c10::Stream::UNSAFE, Device(config.type, device), id)); });
}

API double td_elapsed(int64_t from, int64_t to) { return event_milliseconds(to) - event_milliseconds(from); }

// current, peak, allocated, freed of bytes, then of blocks; then the number of refused allocations.
API int td_usage(int device, int64_t* out) {
  return guarded([&] {
    const Usage& u = usage(static_cast<DeviceIndex>(device));
    const int64_t values[] = {u.bytes,  u.bytes_peak,  u.bytes_allocated,  u.bytes_freed, u.blocks,
                              u.blocks_peak, u.blocks_allocated, u.blocks_freed, u.ooms};
    std::memcpy(out, values, sizeof values);
  });
}
API int td_reset_peak(int device) {
  return guarded([&] { reset_peak(static_cast<DeviceIndex>(device)); });
}
API int td_reset_accumulated(int device) {
  return guarded([&] { reset_accumulated(static_cast<DeviceIndex>(device)); });
}
API void td_set_limit(uint64_t bytes) { config.limit = bytes; }
API uint64_t td_limit() { return config.limit; }

// Puts the bytes of a physical storage (shared memory) under a virtual one; both are StorageImpl pointers.
API int td_adopt(void* virtual_storage, void* physical_storage) {
  return guarded([&] {
    auto* to = static_cast<StorageImpl*>(virtual_storage);
    auto* from = static_cast<StorageImpl*>(physical_storage);
    c10::raw::intrusive_ptr::incref(from);
    c10::DataPtr shared(from->_mutable_data_ptr_no_checks().get(), from,
                        [](void* p) { c10::raw::intrusive_ptr::decref(static_cast<StorageImpl*>(p)); }, from->device());
    to->set_data_ptr_noswap(label(std::move(shared), from->nbytes(), to->device()));
    to->set_nbytes(from->nbytes());
  });
}

API int td_resize(void* virtual_storage, uint64_t bytes) {
  return guarded([&] {
    auto* storage = static_cast<StorageImpl*>(virtual_storage);
    c10::DeviceGuard guard(storage->device());
    c10::DataPtr fresh = bytes ? virtual_allocator()->allocate(bytes) : c10::DataPtr(nullptr, storage->device());
    if (const auto kept = std::min<size_t>(bytes, storage->nbytes()))
      virtual_allocator()->copy_data(fresh.get(), storage->data(), kept);
    storage->set_data_ptr_noswap(std::move(fresh));
    storage->set_nbytes(bytes);
  });
}

API int td_capture_begin(int64_t* graph) {
  return guarded([&] { *graph = capture_begin(); });
}
API int td_capture_end(int64_t graph) {
  return guarded([&] { capture_end(graph); });
}
API int td_capture_replay(int64_t graph) {
  return guarded([&] { capture_replay(graph); });
}
API void td_capture_drop(int64_t graph) { capture_drop(graph); }
API int td_capturing() { return capturing() ? 1 : 0; }
