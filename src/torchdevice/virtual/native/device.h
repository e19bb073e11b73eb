// The shared declarations of the virtual-device library: the configuration, and the interface of each part.
//
//   backing.cpp      the device that holds the bytes and computes: the CPU, or a real accelerator
//   memory.cpp       the allocators: memory with the virtual device type, pinned host memory
//   segments.cpp     memory in segments and pools, with statistics and a limit per device
//   guard.cpp        current device, streams, events; the autograd engine's queues
//   hooks.cpp        the hooks that ATen calls on a backend (MPS, CUDA, XPU) and the random generator
//   relabel.cpp      conversion between virtual tensors and tensors of the backing over the same bytes, for every layout
//   kernel.cpp       the boxed kernel of (nearly) all operators, counts, refusals
//   direct.cpp       kernels with a signature, for frequent operators
//   fallback.cpp     operators that the CPU computes in a session; also a separate library
//   refusals.cpp     operators whose kernel refuses some dtypes or sizes in a session; part of that library too
//   graphs.cpp       capture and replay of calls
//   determinism.cpp  operators without a deterministic kernel on CUDA
//   dtypes.cpp       dtypes that GPU kernels support and CPU kernels do not
//   history.cpp      the history of allocations and frees
//   native.cpp       operators that need their own kernel
//   attention.cpp    attention, one of them
//   works.cpp        the works that collectives return
//   api.cpp          the C functions that Python calls; only these are exported
//
// A *virtual* tensor has the virtual device type (mps, cuda, xpu). Its bytes belong to the *backing*, whose kernels
// compute. "On the host" and "on the backing" are the same only if the backing is the CPU.
#pragma once

#include "calls.h"
#include "forks.h"
#include "schemas.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/AcceleratorHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch {
struct CapturedTraceback;
}

namespace torchdevice {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::StorageImpl;
using Stack = torch::jit::Stack;

constexpr int kMaxDevices = 64;
constexpr size_t kCacheLine = 64;  // of x86 and most ARM processors; it only affects the speed

// DispatchKeySet(key) for a key that is not a constant takes longer than this.
inline DispatchKeySet dense_keys_of(c10::BackendComponent backend) {
  constexpr DispatchKeySet dense(DispatchKey::Dense);
  return DispatchKeySet(backend) | dense;
}

struct Config {
  DeviceType type = DeviceType::MPS;
  c10::BackendComponent backend = c10::BackendComponent::MPSBit;
  int count = 1;
  uint64_t denied_dtypes = 0;  // one bit per ScalarType that cannot exist on the device
  size_t capacity = 0;         // the total memory that the device reports
  size_t limit = 0;            // the memory limit per device in bytes; 0: no limit

  DispatchKey key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend);
  }
  DispatchKeySet dense_keys() const { return dense_keys_of(backend); }
  bool is_mps() const { return type == DeviceType::MPS; }
};
extern Config config;
c10::BackendComponent backend_of(DeviceType type);  // raises for a type that is neither the CPU nor an available accelerator

// ---- backing.cpp
class Backing {
 public:
  void choose(DeviceType type);  // once, before the installation; raises if the backing cannot compute
  bool is_host() const { return type_ == DeviceType::CPU; }
  DeviceType type() const { return type_; }
  // The backing of the virtual device with this index.
  Device device(DeviceIndex index) const {
    return is_host() ? Device(type_) : Device(type_, static_cast<DeviceIndex>(index % count_));
  }
  // Whether another virtual device has the same backing.
  bool is_shared(DeviceIndex index) const { return index >= count_ || index + count_ < config.count; }
  // Whether its allocator counts the memory of that virtual device alone.
  bool counts(DeviceIndex index) const { return counts_ && !is_shared(index); }
  DispatchKey key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend_);
  }
  DispatchKeySet dense_keys() const { return dense_keys_of(backend_); }
  c10::Allocator* allocator() const { return c10::GetAllocator(type_); }
  at::Generator new_generator(DeviceIndex index) const;
  // Whether the backing has a kernel for an operator, its own or one of torch's composites. Only for dense tensors.
  bool computes(const c10::OperatorHandle& op, DispatchKey functionality) const;
  // The functions below are only for accelerators.
  const c10::impl::DeviceGuardImplInterface& guard() const { return *guard_; }
  const at::AcceleratorHooksInterface& hooks() const;
  c10::DeviceAllocator* device_allocator() const;  // null: it has no statistics
  void empty_cache(c10::MempoolId_t pool) const;
  void copy_bytes(void* to, const void* from, size_t bytes) const;
  bool has_streams() const { return !is_host() && type_ != DeviceType::MPS; }  // Metal has one stream
  c10::Stream stream(const c10::Stream& virtual_stream) const;
  c10::Stream label(const c10::Stream& stream, DeviceIndex index) const;

 private:
  DeviceType type_ = DeviceType::CPU;
  c10::BackendComponent backend_ = c10::BackendComponent::CPUBit;
  DeviceIndex count_ = 1;
  bool counts_ = false;
  const c10::impl::DeviceGuardImplInterface* guard_ = nullptr;
};
extern Backing backing;
// While an object of this class exists, this thread runs a kernel of the backing, which may query the accelerator. The
// backing is then visible and the virtual device is not. Otherwise it is the other way round.
class Computing {
 public:
  Computing() : before_(std::exchange(now_, !backing.is_host())) {}
  ~Computing() { now_ = before_; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
  static bool now() { return now_; }

 private:
  static constinit thread_local bool now_;
  bool before_;
};
// Whether this process was forked after the backing was initialised: accelerators cannot be used after that.
bool lost_by_fork();
// Removes the backing from torch's list of accelerators, except for its own kernels: torch refuses two accelerators per
// process.
void hide_backing();

// For methods that only some of the supported torch versions have, and that therefore cannot be marked `override`. If
// the base class has a method of that name, parameters and result must be equal, or the library does not compile.
template <class Method>
struct Signature;
template <class Class, class Result, class... Arguments>
struct Signature<Result (Class::*)(Arguments...)> {
  using type = Result(Arguments...);
};
template <class Class, class Result, class... Arguments>
struct Signature<Result (Class::*)(Arguments...) const> {
  using type = Result(Arguments...) const;
};
#define TORCHDEVICE_OVERRIDES_IF_THERE(Ours, Base, method)                                                      \
  static_assert(                                                                                                \
      []<class B, class O>(B*, O*) {                                                                            \
        if constexpr (requires { &B::method; })                                                                 \
          return std::is_same_v<                                                                                \
              typename Signature<decltype(&B::method)>::type, typename Signature<decltype(&O::method)>::type>;  \
        else                                                                                                    \
          return true;                                                                                          \
      }(static_cast<Base*>(nullptr), static_cast<Ours*>(nullptr)),                                              \
      #Ours "::" #method " no longer overrides that of " #Base)

inline bool is_virtual(const Tensor& t) { return t.device().type() == config.type; }
inline bool is_on_backing(const Tensor& t) { return t.device().type() == backing.type(); }
// Raises the error of the real backend for a dtype that it does not support.
[[noreturn]] void refuse_dtype(c10::ScalarType dtype);
inline void check_dtype(c10::ScalarType dtype) {
  if (C10_UNLIKELY((config.denied_dtypes >> static_cast<int>(dtype)) & 1)) refuse_dtype(dtype);
}

// ---- memory.cpp
struct Held;
c10::CachingDeviceAllocator::DeviceStats figures(DeviceIndex device);
size_t free_memory(DeviceIndex device);
void reset_peak(DeviceIndex device);
void reset_accumulated(DeviceIndex device);
c10::Allocator* virtual_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
void pin(const void* data, size_t bytes);  // existing memory of the host; only on the CPU
void unpin(const void* data);
void use_pinned_on(const c10::DataPtr& data, const c10::Stream& stream);  // not reused while that stream uses it
// The storage of the backing for a virtual storage, cached with the memory. One call uses it at a time; the first call
// creates it. It does not keep the memory alive. If a kernel keeps it, it is removed from the cache.
struct Twin {
  std::atomic<const void*> call{nullptr};
  int place = -1;  // its index in that call
  c10::intrusive_ptr<StorageImpl> storage;
  Tensor shell;         // a tensor over the storage, for the next one with the same dtype and geometry
  bool seated = false;  // the storage refers to the memory; false: to memory that was freed
};
void retire(Twin& twin);  // its memory is freed: an object without other references is cached for other memory
void free_block(void* twin);
Twin* twin_of_shared(const c10::DataPtr& data);
inline Twin* twin_of(const c10::DataPtr& data) {  // null: memory that was not allocated for a virtual device
  return C10_LIKELY(data.get_deleter() == &free_block) ? static_cast<Twin*>(data.get_context()) : twin_of_shared(data);
}
// The same bytes with the virtual device type, counted until they are freed. Raises if the limit is exceeded.
c10::DataPtr label(c10::DataPtr&& data, size_t bytes, Device device);
// Prepares memory for sharing until the first write. False: it cannot be shared.
bool make_shareable(StorageImpl& storage);
// The context of the backing's allocator, for an allocation of a virtual device.
const c10::DataPtr& unlabelled(const c10::DataPtr& data);
// The backing is out of memory: raises the error class and message of the real device.
void raise_if_full(const c10::Error& error, Device device);
// The memory is not reused before the work of that stream is complete.
void use_on(const c10::DataPtr& data, const c10::Stream& stream);
bool is_of_pool(const c10::DataPtr& data, const c10::MempoolId_t& pool);
// While an object of this class exists, CPU allocations of this thread belong to that virtual device; without a device,
// to the host.
class Allocating {
 public:
  explicit Allocating(const std::optional<Device>& device) {
    if (backing.is_host()) enter(device);
  }
  ~Allocating() {
    if (backing.is_host()) leave();
  }
  Allocating(const Allocating&) = delete;
  Allocating& operator=(const Allocating&) = delete;

 private:
  void enter(const std::optional<Device>& device);
  void leave();
  DeviceIndex before_ = -1;
};
// What Python answers when a device is full: attempt 0 may free memory, attempt 1 is after that.
enum ReliefAnswer : int { kRaise, kTryAgain, kUseHost };
using Relief = int (*)(int device, int64_t asked, int attempt);
void set_relief(Relief function);  // null: none
c10::Allocator* host_allocator();  // the CPU's own allocator; null if it was not replaced
// Memory that a checkpoint restored gets an owner; and the reverse: the memory is not freed with its tensor.
c10::DataPtr own_memory_at(DeviceIndex device, void* address);
void disown_memory(const c10::DataPtr& data);
std::vector<Held> held_outside_segments();
void install_allocators();

// ---- segments.cpp
using Traceback = std::shared_ptr<torch::CapturedTraceback>;
struct Segment;
struct SegmentPool;
struct Piece {
  enum State : int { kFree, kAllocated, kWaiting };  // the last: freed, but still used by a stream
  char* address;
  size_t size;
  c10::StreamId stream;
  Segment* segment = nullptr;
  State state = kFree;
  size_t requested = 0;
  Piece *previous = nullptr, *next = nullptr;  // in its segment
  Piece** owner = nullptr;                     // the pointer of its owner
  std::vector<c10::Stream> used_on{};
  double free_at = 0.0;
  Traceback from{};
};
struct Happening {  // in the wording of torch's own allocators
  const char* action;
  const void* address;
  size_t bytes;
  c10::StreamId stream;
};
using Happened = c10::SmallVector<Happening, 4>;
bool keeps_segments();
Piece* take_piece(DeviceIndex device, size_t bytes, Happened& happened);  // null: out of memory
void own_piece(DeviceIndex device, Piece* piece, Piece** owner);
void disown_piece(DeviceIndex device, Piece*& of_owner);  // it stays allocated
void give_back_piece(DeviceIndex device, Piece* const& of_owner, Happened& happened);
void use_piece_on(DeviceIndex device, Piece* const& of_owner, const c10::Stream& stream);
bool is_in_pool(DeviceIndex device, Piece* const& of_owner, const c10::MempoolId_t& pool);
bool count_foreign(DeviceIndex device, int64_t bytes);  // memory that is not a piece of a segment; false: it exceeds the limit
void uncount_foreign(DeviceIndex device, int64_t bytes);
c10::CachingDeviceAllocator::DeviceStats statistics(DeviceIndex device);
std::vector<int64_t> flattened(c10::CachingDeviceAllocator::DeviceStats statistics);  // as `Library.statistics` reads them
void reset_peak_statistics(DeviceIndex device);
void reset_accumulated_statistics(DeviceIndex device);
void count_refused(DeviceIndex device);
size_t memory_limit(DeviceIndex device);  // the limit in bytes; 0: no limit
void set_memory_limit(DeviceIndex device, size_t bytes);
size_t usable_memory(DeviceIndex device);
void keep_pool(DeviceIndex device, const c10::MempoolId_t& pool);
void drop_pool(DeviceIndex device, const c10::MempoolId_t& pool);
int pool_users(DeviceIndex device, const c10::MempoolId_t& pool);
// Later allocations of this thread, or of the current stream, use that pool.
void route_to_pool(DeviceIndex device, const c10::MempoolId_t& pool, bool of_stream);
void end_route(DeviceIndex device, const c10::MempoolId_t& pool);
void empty_segments(DeviceIndex device, const c10::MempoolId_t& only, Happened& happened);
struct PieceView {
  const char* address;
  size_t size, requested;
  Piece::State state;
  Traceback from;
};
struct SegmentView {
  const char* address;
  size_t size = 0;
  c10::StreamId stream = 0;
  c10::MempoolId_t pool{};
  bool large = false;
  Traceback from{};
  std::vector<PieceView> pieces{};
};
std::vector<SegmentView> view_segments(DeviceIndex device);
// Restores the state of the pieces of a pool. Pieces that were allocated later lose their memory.
void restore_pool(DeviceIndex device, const c10::MempoolId_t& pool, const std::vector<SegmentView>& before);
Piece* piece_at(DeviceIndex device, const void* address);  // an allocated piece without an owner; null: there is none

// ---- history.cpp
enum Context : int { kNoContext, kLiveContext, kAllocationContext, kEveryContext };  // the kinds of events with a traceback
struct Held {  // an allocation
  const void* address;
  int64_t bytes;
  DeviceIndex device;
  c10::StreamId stream = 0;
  Traceback from{};
};
void note_allocation(const Held& held);
void note_happened(DeviceIndex device, const Happened& happened, int context);
Traceback traceback_of_allocation();
void note_free(const Held& held);
void note_out_of_memory(int64_t asked, DeviceIndex device, int64_t total, int64_t free);
using OutOfMemoryObserver = void (*)(int device, int64_t asked, int64_t total, int64_t free);
void observe_out_of_memory(OutOfMemoryObserver observer);  // permanently
void record_history(bool traced, int context, bool with_cpp, size_t most, bool clear);
std::string dump_history();

// ---- guard.cpp
struct DriverError {
  int32_t code;  // of cudaError_t
  const char* says;
};
constexpr DriverError kInvalidDevice{101, "invalid device ordinal"}, kInvalidHandle{400, "invalid resource handle"},
    kNotReady{600, "device not ready"}, kCapturing{900, "operation not permitted when stream is capturing"},
    kWrongThread{908, "attempt to terminate a thread-local capture sequence from another thread"};
// On CUDA a torch.AcceleratorError, as torch raises for the errors of CUDA's functions.
[[noreturn]] void raise_driver_error(const DriverError& error);
DeviceIndex current_device();
void set_current_device(DeviceIndex device);  // raises for an index that does not exist
inline Device resolve(Device d) { return d.has_index() ? d : Device(d.type(), current_device()); }
c10::Stream current_stream(DeviceIndex device);
void set_current_stream(c10::Stream stream);
void expect_other_streams();  // torch itself may change the stream of a thread on the accelerator
c10::Stream new_stream(DeviceIndex device, int priority);
bool has_stream(DeviceIndex device, c10::StreamId id);  // whether a program can have a stream with this id
double milliseconds();                                 // a monotonic clock
// On the CPU: keeps the current stream of the current device busy for that time. Operations that wait for it wait.
void keep_busy(double for_milliseconds);
void wait_for_current_stream(DeviceIndex device);
double busy_until(const c10::Stream& stream);  // in `milliseconds`; 0: it never was busy
double milliseconds_between(int64_t from, int64_t to);  // two recorded events, by their ids
void synchronize(DeviceIndex device);
void install_guard();
// The autograd engine creates its queues at the first backward. True: that was before the device existed, and it was
// repaired.
bool repair_autograd_queues();
bool autograd_threads_run();

// ---- hooks.cpp
void install_hooks();
const at::Generator& virtual_generator(const std::optional<at::Generator>& asked, Device device);  // `asked`, or the default
at::Generator backing_generator(const std::optional<at::Generator>& asked, Device device);
// While set, torch.Generator(device=…) returns the device's default generator instead of a new one.
void hand_out_default_generators(bool yes);

// ---- kernel.cpp
c10::IValue argument(const c10::OperatorHandle& op, const Stack& stack, const char* name);  // None: no such argument
enum Flag : uint32_t {  // Python passes them by name: kFlags in api.cpp
  kNoDeviceCheck = 1,  // 0-dim tensors of the host are allowed (torch: `device_check: NoCheck`)
  kAnyDevice = 2,      // tensors of the host are allowed (copies)
  kDeny = 4,           // the real backend lacks it: NotImplementedError
  kWarn = 8,           // the real backend would fall back to the CPU: run, warn once
  kEvenSizes = 16,     // adaptive pooling: the real backend refuses sizes that do not divide
  kOnHost = 32,        // the backing lacks it: the CPU computes, with copies
  kWritesAll = 64,     // a collective: its schema does not declare what it writes
  kMovesNumbers = 128, // 0-dim tensors of other devices of the type are allowed: the kernel copies them
};
struct Alert;
struct Wider;
struct OpRecord {
  std::string name;
  const Alert* alert = nullptr;  // CUDA has no deterministic kernel for it
  const Wider* wider = nullptr;  // the CPU has no kernel for some dtypes
  uint32_t flags = 0;
  uint64_t denied_dtypes = 0;  // dtypes of the first tensor that the kernel of the real backend refuses
  std::string refusing_kernel;  // its name in CUDA's message; empty: the message of MPS
  // Dtypes that a kernel with a signature leaves to the boxed kernel: of the first tensor, and of any argument.
  uint64_t boxed_dtypes = 0, widened_dtypes = 0;
  std::atomic<uint64_t> calls{0}, denied{0}, on_host{0};
  std::atomic<const std::vector<uint8_t>*> plan{nullptr};  // the relevant arguments; set at the first call
  std::atomic<bool> waits{false};                          // whether the host may wait for its result; also set then
};
OpRecord* make_record(
    std::string name, uint32_t flags, uint64_t denied_dtypes, DispatchKey functionality = DispatchKey::Dense);
std::string dump_records();
void reset_records();
// The work of the boxed kernel, for kernels that only prepare its arguments.
void run_boxed(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack, OpRecord* record,
    DispatchKey functionality = DispatchKey::Dense);
// torch.cuda.set_sync_debug_mode: 0 nothing, 1 a warning, 2 an error if the host has to wait for the device.
void set_sync_debug_mode(int mode);
void about_to_wait();
// Whether the CPU computes operators that the backing lacks; if not, they are refused.
void allow_host(bool yes);
// For sessions: the fallback computes refused operators in the device's memory if that is host memory, and gets the type of
// the backing otherwise.
void prepare_fallback();
// By namespace, name and overload, in the notation of the dispatcher: aten::add.Tensor
std::optional<c10::OperatorHandle> find_operator(const std::string& name);
torch::CppFunction boxed_kernel(OpRecord* record, DispatchKey functionality);
c10::BoxedKernel boxed(OpRecord* record);  // the same, for dense tensors
bool may_wait(const c10::OperatorHandle& op);  // the host, for its result
// For composites that the real backend refuses for some dtypes: checks the dtype, then lets torch decompose the
// operator.
torch::CppFunction dtype_guard(OpRecord* record);
torch::CppFunction boxed_fallback(uint32_t flags, DispatchKey functionality);

// ---- direct.cpp
// A kernel with a signature for dense tensors; none: the operator needs the boxed kernel.
std::optional<torch::CppFunction> direct_kernel(const c10::OperatorHandle& op, OpRecord* record);

// ---- determinism.cpp
const Alert* alert_of(std::string_view name);  // null: there is none on this device
// Raises the error or the warning of torch.use_deterministic_algorithms for such a kernel.
void alert(const Alert& about, const c10::OperatorHandle& op, const Stack& stack);

// ---- dtypes.cpp
const Wider* wider_of(std::string_view name);  // null: no conversion is needed
// Dtypes that a rule converts: of the first tensor only, or of any argument. One of the two is 0.
uint64_t dtypes_of_first(const Wider* rule);
uint64_t dtypes_of_any(const Wider* rule);
// Calls `run` with arguments of a wider dtype on the stack. False: no conversion was needed, and nothing was done.
bool run_wider(const Wider& rule, const c10::OperatorHandle& op, Stack* stack, const std::function<void()>& run);

// ---- graphs.cpp; "capturing" refers to the calling thread
int64_t capture_begin(const c10::MempoolId_t& pool);
c10::MempoolId_t captured_pool();  // the pool of memory during the capture; {0, 0}: no capture
void capture_end(int64_t graph);
void capture_replay(int64_t graph);
void capture_drop(int64_t graph);
extern std::atomic<int> open_captures;  // of all threads
bool captures_here();
inline bool capturing() { return C10_UNLIKELY(open_captures.load(std::memory_order_relaxed) != 0) && captures_here(); }
[[noreturn]] void refuse_to_wait();  // raises CUDA's error for a host that waits for captured work
void capture_call(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack arguments, const Stack& stack, size_t results_from);
// The generator that a replay draws from: it has the present state of `asked`, or of the default, also if that is given
// another state later.
at::Generator capture_generator(const std::optional<at::Generator>& asked, Device device);
void capture_copy(const Tensor& self, const Tensor& src);  // recorded by the copy kernel, which is not boxed
void capture_own(const Tensor& made);                      // created by a kernel that is not recorded
void capture_touch(const Tensor& written);                 // save the content of a tensor that is older than the capture

// ---- native.cpp
void register_native_kernels();
// One line "dispatch key \t operator" per operator whose own kernel is sufficient.
const std::string& native_kernels();

}  // namespace torchdevice
