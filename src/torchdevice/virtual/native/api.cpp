// The C functions that Python calls through ctypes. An int result of 1 means failure: td_error() then has the message.
// No Python symbol is used here, so one binary serves every Python of a torch version.
#include "calls.h"
#include "device.h"

#include <ATen/core/CachingHostAllocator.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>
#include <string_view>

namespace {

thread_local std::string text;
bool installed = false;

// Arguments from ctypes are checked here before they are narrowed or dereferenced. A DeviceIndex has eight bits: a
// larger value becomes an index that no device has, and the lookup raises its usual error.
torchdevice::DeviceIndex index(int device) {
  return static_cast<torchdevice::DeviceIndex>(std::clamp(device, -1, torchdevice::kMaxDevices));
}

template <class T>
T* given(T* pointer, const char* what) {
  TORCH_CHECK(pointer != nullptr, "no ", what, " was given");
  return pointer;
}

// One bit is reserved for "no such device", in td_limit.
size_t limit_of(uint64_t bytes) {
  TORCH_CHECK(bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "no device has ", bytes, " bytes");
  return bytes;
}

torchdevice::StorageImpl* storage_at(void* pointer, torchdevice::DeviceType type) {
  auto* storage = static_cast<torchdevice::StorageImpl*>(given(pointer, "storage"));
  TORCH_CHECK(storage->device_type() == type, "a storage on ", type, " was expected, not one on ", storage->device());
  return storage;
}

// Values that Python passes by name. The name of a functionality is the prefix of its dispatch keys: CPU, SparseCPU, …
template <class T>
struct Named {
  const char* name;
  T value;
};
const Named<torchdevice::DispatchKey> kFunctionalities[] = {
    {"", torchdevice::DispatchKey::Dense},
    {"Sparse", torchdevice::DispatchKey::Sparse},
    {"SparseCsr", torchdevice::DispatchKey::SparseCsr},
    {"Quantized", torchdevice::DispatchKey::Quantized},
    {"NestedTensor", torchdevice::DispatchKey::NestedTensor},
};
const Named<torchdevice::Flag> kFlags[] = {
    {"no_device_check", torchdevice::kNoDeviceCheck},
    {"any_device", torchdevice::kAnyDevice},
    {"deny", torchdevice::kDeny},
    {"warn", torchdevice::kWarn},
    {"even_sizes", torchdevice::kEvenSizes},
    {"moves_numbers", torchdevice::kMovesNumbers},
};

template <class T, size_t n>
T named(const Named<T> (&table)[n], std::string_view name, const char* what) {
  for (const auto& row : table)
    if (name == row.name) return row.value;
  TORCH_CHECK(false, "no ", what, " has the name '", name, "'");
}

torchdevice::DispatchKey functionality(const char* name) {
  return named(kFunctionalities, given(name, "functionality"), "functionality");
}

template <class F>
void each_name(const char* names, F f) {  // separated by commas
  for (std::string_view rest = given(names, "names"); !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    f(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
}

uint32_t flags_of(const char* names) {
  uint32_t flags = 0;
  each_name(names, [&](std::string_view name) { flags |= named(kFlags, name, "flag"); });
  return flags;
}

// One bit per ScalarType, in torch's numbering.
uint64_t dtypes_of(const char* names) {
  uint64_t bits = 0;
  each_name(names, [&](std::string_view name) {
    const auto found = c10::getStringToDtypeMap().find(std::string(name));
    TORCH_CHECK(found != c10::getStringToDtypeMap().end(), "no dtype has the name '", name, "'");
    bits |= uint64_t(1) << static_cast<int>(found->second);
  });
  return bits;
}

torch::Library& library(const char* name_space, torchdevice::DispatchKey key) {
  // Never destroyed: a destroyed Library removes its registrations.
  return *new torch::Library(torch::Library::IMPL, name_space, std::make_optional(key), __FILE__, __LINE__);
}

}  // namespace

using namespace torchdevice;

API const char* td_error() { return error.c_str(); }
API int td_error_code() { return error_code; }

// In the order of registration. The first one has no name.
API const char* td_functionalities() {
  text.clear();
  for (const auto& row : kFunctionalities) text.append(row.name).append("\n");
  return text.c_str();
}

// `on`: the type of the device that computes, "cpu" or an available accelerator.
API int td_init(
    const char* device, const char* on, int count, const char* denied_dtypes, uint64_t limit, uint64_t capacity) {
  return guarded([&] {
    TORCH_CHECK(count > 0 && count <= kMaxDevices, "between 1 and ", kMaxDevices, " devices can be made, not ", count);
    TORCH_CHECK(!installed, "this process has a virtual device already");
    const auto type = Device(std::string(given(device, "device"))).type();
    const uint64_t dtypes = dtypes_of(denied_dtypes);
    TORCH_CHECK(type != DeviceType::CPU, "the CPU needs no virtual device");
    config.backend = backend_of(type);
    config.type = type;
    backing.choose(Device(std::string(given(on, "device that computes"))).type());
    installed = true;
    config.count = count;
    config.denied_dtypes = dtypes;
    config.limit = limit_of(limit);
    for (int i = 0; i < count; i++) set_memory_limit(index(i), config.limit);
    config.capacity = capacity;
    install_guard();
    install_allocators();
    install_hooks();
    Quiet quiet;  // torch warns if one of its own kernels is overridden
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    register_native_kernels();
    prepare_fallback();
  });
}

// One line "dispatch key \t operator" per registration of td_init. td_register must not replace these.
API const char* td_native_kernels() { return native_kernels().c_str(); }

// `name` with namespace and overload, in the notation of the dispatcher: aten::add.Tensor. `refusing_kernel` is named in the
// error for a denied dtype; empty: the error is that of MPS.
API int td_register(
    const char* name, const char* kind, const char* flags, const char* denied_dtypes, const char* refusing_kernel) {
  return guarded([&] {
    const std::string full(given(name, "name"));
    const auto colon = full.find("::");
    TORCH_CHECK(installed && colon != std::string::npos, "no operator can be registered as ", full);
    const auto key = functionality(kind);
    const auto op = find_operator(full);
    uint32_t how = flags_of(flags);
    if (op && !backing.computes(*op, key)) how |= kOnHost;
    auto* record = make_record(full, how, dtypes_of(denied_dtypes), key);
    record->refusing_kernel = given(refusing_kernel, "kernel");
    Quiet quiet;  // torch warns if one of its own kernels is overridden
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    auto direct = op && key == DispatchKey::Dense ? direct_kernel(*op, record) : std::nullopt;
    library(full.substr(0, colon).c_str(), config.key(key))
        .impl(full.substr(colon + 2).c_str(), direct ? std::move(*direct) : boxed_kernel(record, key));
  });
}

API int td_guard_dtypes(const char* name, const char* denied_dtypes) {
  return guarded([&] {
    TORCH_CHECK(installed, "this process has no virtual device");
    auto* record = make_record(std::string("aten::") + given(name, "name"), 0, dtypes_of(denied_dtypes));
    const auto autograd = c10::toRuntimePerBackendFunctionalityKey(DispatchKey::AutogradFunctionality, config.backend);
    for (const auto key : {config.key(), autograd}) library("aten", key).impl(name, dtype_guard(record));
  });
}

API int td_fallback(const char* kind, const char* flags) {
  return guarded([&] {
    TORCH_CHECK(installed, "this process has no virtual device");
    const auto key = functionality(kind);
    library("_", config.key(key)).fallback(boxed_fallback(flags_of(flags), key));
  });
}

API int td_repair_autograd() { return repair_autograd_queues() ? 1 : 0; }
API int td_autograd_threads_run() { return autograd_threads_run() ? 1 : 0; }
API int td_default_generators(int yes) {
  hand_out_default_generators(yes != 0);
  return 0;
}

// One line "name \t calls \t denied \t on the host" per operator. Valid until the next call on this thread.
API const char* td_counts() {
  text = dump_records();
  return text.c_str();
}
API int td_reset_counts() {
  reset_records();
  return 0;
}

API int td_allow_host(int yes) {
  allow_host(yes != 0);
  return 0;
}
API int td_lost_by_fork() { return lost_by_fork() ? 1 : 0; }
API int td_synchronize(int device) {
  return guarded([&] { synchronize(index(device)); });
}
API int td_empty_cache(uint64_t owner, uint64_t pool) {
  return guarded([&] { static_cast<c10::DeviceAllocator*>(virtual_allocator())->emptyCache({owner, pool}); });
}
API int td_empty_pinned_cache() {
  return guarded([&] {
    if (auto* pinned = at::getHostAllocator(config.type)) pinned->empty_cache();  // some backings have none
  });
}

// The id of a pool has two numbers. `of_stream`: the allocations of the current stream, else those of this thread.
API int td_begin_pool(int device, uint64_t owner, uint64_t pool, int of_stream) {
  return guarded([&] { route_to_pool(index(device), {owner, pool}, of_stream); });
}
API int td_end_pool(int device, uint64_t owner, uint64_t pool) {
  return guarded([&] { end_route(index(device), {owner, pool}); });
}
API int td_keep_pool(int device, uint64_t owner, uint64_t pool) {
  return guarded([&] { keep_pool(index(device), {owner, pool}); });
}
API int td_drop_pool(int device, uint64_t owner, uint64_t pool) {
  return guarded([&] { drop_pool(index(device), {owner, pool}); });
}
// -1: there is no such device.
API int td_pool_users(int device, uint64_t owner, uint64_t pool) {
  int users = -1;
  guarded([&] { users = pool_users(index(device), {owner, pool}); });
  return users;
}
// Lines: "G address" per segment, then "P size requested allocated" per piece.
API int td_restore_pool(int device, uint64_t owner, uint64_t pool, const char* state) {
  return guarded([&] {
    std::istringstream lines(given(state, "state"));
    std::vector<SegmentView> segments;
    char kind;
    while (lines >> kind) {
      if (kind == 'G') {
        uintptr_t address;
        lines >> address;
        segments.push_back({reinterpret_cast<const char*>(address)});
      } else {
        size_t size, requested;
        bool allocated;
        lines >> size >> requested >> allocated;
        TORCH_CHECK(lines && !segments.empty(), "no state of a pool: ", state);
        segments.back().pieces.push_back({nullptr, size, requested, allocated ? Piece::kAllocated : Piece::kFree, {}});
      }
    }
    restore_pool(index(device), {owner, pool}, segments);
  });
}
// A virtual storage over that memory. It owns the memory or only refers to it.
API int td_point(void* virtual_storage, void* address, uint64_t bytes) {
  return guarded([&] {
    auto* storage = storage_at(virtual_storage, config.type);
    storage->set_data_ptr_noswap(c10::DataPtr(address, storage->device()));
    storage->set_nbytes(bytes);
  });
}
API int td_own(void* virtual_storage) {
  return guarded([&] {
    auto* storage = storage_at(virtual_storage, config.type);
    storage->set_data_ptr_noswap(own_memory_at(storage->device().index(), storage->_mutable_data_ptr_no_checks().get()));
  });
}
API int td_disown(void* virtual_storage) {
  return guarded([&] { disown_memory(storage_at(virtual_storage, config.type)->_mutable_data_ptr_no_checks()); });
}
// Frees memory that no storage owns.
API int td_free(int device, void* address) {
  return guarded([&] { own_memory_at(index(device), address).clear(); });
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
    TORCH_CHECK(has_stream(index(device), id), "no stream ", id);
    set_current_stream(c10::Stream(c10::Stream::UNSAFE, Device(config.type, index(device)), id));
  });
}

// NaN: one of them is not an event, or no longer exists.
API double td_elapsed(int64_t from, int64_t to) {
  double milliseconds = std::numeric_limits<double>::quiet_NaN();
  guarded([&] { milliseconds = milliseconds_between(from, to); });
  return milliseconds;
}

// In the format that `Library.statistics` reads.
API int td_usage(int device, int64_t* out) {
  return guarded([&] {
    const auto values = flattened(figures(index(device)));
    std::copy(values.begin(), values.end(), given(out, "room for figures"));
  });
}
API int td_reset_peak(int device) {
  return guarded([&] { reset_peak(index(device)); });
}
API int td_reset_accumulated(int device) {
  return guarded([&] { reset_accumulated(index(device)); });
}
API int td_set_limit(int device, uint64_t bytes) {
  return guarded([&] { set_memory_limit(index(device), limit_of(bytes)); });
}
// All bits set: there is no such device.
API uint64_t td_limit(int device) {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  guarded([&] { bytes = memory_limit(index(device)); });
  return bytes;
}

API uint64_t td_free_memory(int device) {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  guarded([&] { bytes = free_memory(index(device)); });
  return bytes;
}

// Uses the bytes of a host storage (shared memory) for a virtual one. Both are StorageImpl pointers.
API int td_adopt(void* virtual_storage, void* host_storage) {
  return guarded([&] {
    auto* to = storage_at(virtual_storage, config.type);
    auto* from = storage_at(host_storage, DeviceType::CPU);
    TORCH_CHECK(backing.is_host(), "memory of the host cannot be that of a ", config.type, " device on ", backing.type());
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

API int td_sync_debug_mode(int mode) {
  return guarded([&] {
    TORCH_CHECK(mode >= 0 && mode <= 2, "the debug mode of synchronisation is 0, 1 or 2, not ", mode);
    set_sync_debug_mode(mode);
  });
}

// Marks host memory as pinned. With an accelerator as backing this is not possible, because its driver must know.
API int td_pin(void* address, uint64_t bytes) {
  return guarded([&] {
    given(address, "address");
    TORCH_CHECK(bytes < (uint64_t(1) << 48), "no host has ", bytes, " bytes");
    if (backing.is_host()) pin(address, bytes);
  });
}
API int td_unpin(void* address) {
  return guarded([&] {
    given(address, "address");
    if (backing.is_host()) unpin(address);
  });
}

API int td_keep_busy(double milliseconds) {
  return guarded([&] {
    TORCH_CHECK(milliseconds >= 0 && milliseconds < 1e9, "a stream cannot sleep for ", milliseconds, " ms");
    keep_busy(milliseconds);
  });
}

// context: 0 none, 1 of held memory, 2 of allocations, 3 also of frees
API int td_record_history(int traced, int context, int with_cpp, uint64_t most, int clear) {
  return guarded([&] { record_history(traced != 0, std::clamp(context, 0, 3), with_cpp != 0, most, clear != 0); });
}
API const char* td_history() {
  text.clear();
  guarded([&] { text = dump_history(); });
  return text.c_str();
}
API int td_observe_out_of_memory(void (*observer)(int, int64_t, int64_t, int64_t)) {
  return guarded([&] { observe_out_of_memory(given(observer, "function")); });
}
API int td_set_relief(int (*relief)(int, int64_t, int)) {
  return guarded([&] { set_relief(relief); });
}

API int td_capture_begin(uint64_t owner, uint64_t pool, int64_t* graph) {
  return guarded([&] {
    given(graph, "room for a number");  // before the capture begins
    *graph = capture_begin({owner, pool});
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
