// What the parts of the virtual-device library share: the configuration, and what each part offers to the others.
//
//   backing.cpp      what holds the bytes and computes: the CPU, or an accelerator that is really there
//   memory.cpp       the allocators: memory under the virtual label, pinned host memory
//   segments.cpp     memory in segments and pools, with statistics and a limit per device
//   guard.cpp        current device, streams, events; the autograd engine's queues
//   hooks.cpp        what ATen asks of a backend (MPS, CUDA, XPU hooks) and the random generator
//   relabel.cpp      virtual tensor <-> tensor of the backing over the same bytes, for every layout
//   kernel.cpp       the one boxed kernel behind (nearly) all operators, counts, refusals
//   fallback.cpp     what a session has the CPU compute; also a library of its own
//   graphs.cpp       capture and replay of calls
//   determinism.cpp  operators that CUDA has no deterministic kernel for
//   dtypes.cpp       dtypes that the kernels of GPUs take and the CPU's refuse
//   history.cpp      which memory is held, what was allocated and freed
//   native.cpp       operators that need a kernel of their own
//   api.cpp          the C functions that Python calls; nothing else is visible from outside
//
// A *virtual* tensor carries the virtual device type (mps, cuda, xpu). Its bytes belong to the *backing*, whose kernels
// compute. "On the host" and "on the backing" are the same only where the backing is the CPU.
#pragma once

#include "calls.h"
#include "forks.h"

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

struct Config {
  DeviceType type = DeviceType::MPS;
  c10::BackendComponent backend = c10::BackendComponent::MPSBit;
  int count = 1;
  uint64_t denied_dtypes = 0;  // one bit per ScalarType: no tensor of it can exist on the device
  size_t capacity = 0;         // what the device says it has in all
  size_t limit = 0;            // bytes that each device may hold; 0: no limit

  DispatchKey key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend);
  }
  bool is_mps() const { return type == DeviceType::MPS; }
};
extern Config config;
c10::BackendComponent backend_of(DeviceType type);  // raises for a type that is neither the CPU nor an accelerator here

// ---- backing.cpp
class Backing {
 public:
  void choose(DeviceType type);  // once, before anything is installed; raises where it cannot compute
  bool is_host() const { return type_ == DeviceType::CPU; }
  DeviceType type() const { return type_; }
  // What stands behind the virtual device with this index.
  Device device(DeviceIndex index) const {
    return is_host() ? Device(type_) : Device(type_, static_cast<DeviceIndex>(index % count_));
  }
  bool is_shared(DeviceIndex index) const { return index >= count_; }  // another virtual device has it too
  bool counts(DeviceIndex index) const { return counts_ && !is_shared(index); }  // its allocator, what that device holds
  DispatchKey key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend_);
  }
  c10::Allocator* allocator() const { return c10::GetAllocator(type_); }
  at::Generator new_generator(DeviceIndex index) const;
  // Whether it has a kernel for an operator, of its own or of torch's composites. Only dense tensors are looked at.
  bool computes(const c10::OperatorHandle& op, DispatchKey functionality) const;
  // The rest is asked of accelerators only.
  const c10::impl::DeviceGuardImplInterface& guard() const { return *guard_; }
  const at::AcceleratorHooksInterface& hooks() const;
  c10::DeviceAllocator* device_allocator() const;  // null: it keeps no statistics
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
// While one lives, this thread runs a kernel of the backing, which may ask torch what its accelerator can do: then the backing
// is there and the virtual device is not. At all other times it is the other way round.
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
// Whether this process was forked after the backing began: accelerators do not survive that.
bool lost_by_fork();
// Takes the backing out of torch's list of accelerators, but for its own kernels: torch refuses two of them in one process.
void hide_backing();

// For methods that only some of the supported torch versions have, which therefore cannot say `override`: where the base
// class has one of that name, both have the same parameters and result, or the library does not compile.
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
// Raises what the real backend raises for a dtype that it cannot hold.
void check_dtype(c10::ScalarType dtype);

// ---- memory.cpp
struct Held;
c10::CachingDeviceAllocator::DeviceStats figures(DeviceIndex device);
size_t free_memory(DeviceIndex device);
void reset_peak(DeviceIndex device);
void reset_accumulated(DeviceIndex device);
c10::Allocator* virtual_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
void pin(const void* data, size_t bytes);  // memory of the host that was there before; only on the CPU
void unpin(const void* data);
void use_pinned_on(const c10::DataPtr& data, const c10::Stream& stream);  // it is not used again before that stream is done
// What stands for a storage in calls of the backing, kept with the memory: one call has it at a time, and makes it if it is
// the first. It does not keep the memory alive; if a kernel keeps it, it is taken away from here.
struct Twin {
  std::atomic<const void*> call{nullptr};
  int place = -1;  // where that call has it
  c10::intrusive_ptr<StorageImpl> storage;
  Tensor shell;         // a tensor over the storage, for the next one with the same dtype and geometry
  bool seated = false;  // the storage is over the memory; false: over memory that was freed
};
void retire(Twin& twin);  // its memory is freed: what nobody else holds is kept for other memory
void free_block(void* twin);
Twin* twin_of_shared(const c10::DataPtr& data);
inline Twin* twin_of(const c10::DataPtr& data) {  // null: memory that was not allocated under the virtual label
  return C10_LIKELY(data.get_deleter() == &free_block) ? static_cast<Twin*>(data.get_context()) : twin_of_shared(data);
}
// The same bytes under the virtual device's label; counted until they are freed. Raises when the limit is passed.
c10::DataPtr label(c10::DataPtr&& data, size_t bytes, Device device);
// Prepares memory to be shared until somebody writes. False: it cannot be.
bool make_shareable(StorageImpl& storage);
// What the backing's allocator made of it, for an allocation under the virtual label.
const c10::DataPtr& unlabelled(const c10::DataPtr& data);
// The backing had no memory left: the virtual device says so in the words and the class of the real one.
void raise_if_full(const c10::Error& error, Device device);
// The memory is not given to anybody else before that stream is done.
void use_on(const c10::DataPtr& data, const c10::Stream& stream);
bool is_of_pool(const c10::DataPtr& data, const c10::MempoolId_t& pool);
// While one lives, what this thread allocates on the CPU is memory of that virtual device; without a device, it is the host's.
class Allocating {
 public:
  explicit Allocating(std::optional<Device> device);
  ~Allocating();
  Allocating(const Allocating&) = delete;
  Allocating& operator=(const Allocating&) = delete;

 private:
  DeviceIndex before_;
};
c10::Allocator* host_allocator();  // the CPU's own; null where it was not replaced
// Memory that a checkpoint brought back, from now on with an owner; and the opposite: the memory is not freed with its tensor.
c10::DataPtr own_memory_at(DeviceIndex device, void* address);
void disown_memory(const c10::DataPtr& data);
std::vector<Held> held_outside_segments();
void install_allocators();

// ---- segments.cpp
using Traceback = std::shared_ptr<torch::CapturedTraceback>;
struct Segment;
struct SegmentPool;
struct Piece {
  enum State : int { kFree, kAllocated, kWaiting };  // the last: freed, and still used by a stream
  char* address;
  size_t size;
  c10::StreamId stream;
  Segment* segment = nullptr;
  State state = kFree;
  size_t requested = 0;
  Piece *previous = nullptr, *next = nullptr;  // in its segment
  Piece** owner = nullptr;                     // where its owner has it
  std::vector<c10::Stream> used_on{};
  double free_at = 0.0;
  Traceback from{};
};
struct Happening {  // in the words of torch's own allocators
  const char* action;
  const void* address;
  size_t bytes;
  c10::StreamId stream;
};
using Happened = std::vector<Happening>;
bool keeps_segments();
Piece* take_piece(DeviceIndex device, size_t bytes, Happened& happened);  // null: there is no memory left
void own_piece(DeviceIndex device, Piece* piece, Piece** owner);
void disown_piece(DeviceIndex device, Piece*& of_owner);  // it stays allocated
void give_back_piece(DeviceIndex device, Piece* const& of_owner, Happened& happened);
void use_piece_on(DeviceIndex device, Piece* const& of_owner, const c10::Stream& stream);
bool is_in_pool(DeviceIndex device, Piece* const& of_owner, const c10::MempoolId_t& pool);
bool count_foreign(DeviceIndex device, int64_t bytes);  // memory that is no piece; false: it passes the limit
void uncount_foreign(DeviceIndex device, int64_t bytes);
c10::CachingDeviceAllocator::DeviceStats statistics(DeviceIndex device);
std::vector<int64_t> flattened(c10::CachingDeviceAllocator::DeviceStats statistics);  // as `Library.statistics` reads them
void reset_peak_statistics(DeviceIndex device);
void reset_accumulated_statistics(DeviceIndex device);
void count_refused(DeviceIndex device);
size_t memory_limit(DeviceIndex device);  // bytes that it may hold; 0: no limit
void set_memory_limit(DeviceIndex device, size_t bytes);
size_t usable_memory(DeviceIndex device);
void keep_pool(DeviceIndex device, const c10::MempoolId_t& pool);
void drop_pool(DeviceIndex device, const c10::MempoolId_t& pool);
int pool_users(DeviceIndex device, const c10::MempoolId_t& pool);
// From now on what this thread, or the current stream, allocates comes from that pool.
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
// Brings the pieces of a pool to the state that they had. What is held now and was not then loses its memory.
void restore_pool(DeviceIndex device, const c10::MempoolId_t& pool, const std::vector<SegmentView>& before);
Piece* piece_at(DeviceIndex device, const void* address);  // that is allocated and has no owner; null: there is none

// ---- history.cpp
enum Context : int { kNoContext, kLiveContext, kAllocationContext, kEveryContext };  // whose tracebacks are kept
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
void observe_out_of_memory(OutOfMemoryObserver observer);  // for ever
void record_history(bool traced, int context, bool with_cpp, size_t most, bool clear);
std::string dump_history();

// ---- guard.cpp
DeviceIndex current_device();
void set_current_device(DeviceIndex device);  // raises for an ordinal that does not exist
inline Device resolve(Device d) { return d.has_index() ? d : Device(d.type(), current_device()); }
c10::Stream current_stream(DeviceIndex device);
void set_current_stream(c10::Stream stream);
c10::Stream new_stream(DeviceIndex device, int priority);
double milliseconds();                                 // a monotonic clock
// On the CPU the current stream of the current device does nothing for so long; what waits for it, waits.
void keep_busy(double for_milliseconds);
void wait_for_current_stream(DeviceIndex device);
double busy_until(const c10::Stream& stream);  // by `milliseconds`; 0: it never was
double milliseconds_between(int64_t from, int64_t to);  // two recorded events, given by their ids
void synchronize(DeviceIndex device);
void install_guard();
// The autograd engine makes its queues at the first backward. True: that was before the device existed, and it was repaired.
bool repair_autograd_queues();
bool autograd_threads_run();

// ---- hooks.cpp
void install_hooks();
at::Generator backing_generator(const std::optional<at::Generator>& asked, Device device);
// While set, torch.Generator(device=…) hands out the device's default generator instead of a new one.
void hand_out_default_generators(bool yes);

// ---- kernel.cpp
c10::IValue argument(const c10::OperatorHandle& op, const Stack& stack, const char* name);  // None: it has none of that name
bool is_written(const c10::Argument& a);
enum Flag : uint32_t {  // Python gives them by name: kFlags in api.cpp
  kNoDeviceCheck = 1,  // 0-dim tensors of the host may take part (torch: `device_check: NoCheck`)
  kAnyDevice = 2,      // tensors of the host may take part (copies)
  kDeny = 4,           // the real backend lacks it: NotImplementedError
  kWarn = 8,           // the real backend would fall back to the CPU: run, warn once
  kEvenSizes = 16,     // adaptive pooling: the real backend refuses sizes that do not divide
  kOnHost = 32,        // the backing lacks it: the CPU computes, with copies
  kWritesAll = 64,     // a collective: its schema does not say what it writes
};
struct Alert;
struct Wider;
struct OpRecord {
  std::string name;
  const Alert* alert = nullptr;  // CUDA has no deterministic kernel for it
  const Wider* wider = nullptr;  // the CPU has no kernel for some dtypes
  uint32_t flags = 0;
  uint64_t denied_dtypes = 0;  // dtypes of the first tensor that the real backend's kernel refuses
  std::atomic<uint64_t> calls{0}, denied{0}, on_host{0};
  std::atomic<const std::vector<uint8_t>*> plan{nullptr};  // which arguments matter; made at the first call
  std::atomic<bool> waits{false};                          // whether the host may wait for its result; known then too
};
OpRecord* make_record(
    std::string name, uint32_t flags, uint64_t denied_dtypes, DispatchKey functionality = DispatchKey::Dense);
std::string dump_records();
void reset_records();
// What the boxed kernel does, for kernels that only prepare its arguments.
void run_boxed(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack, OpRecord* record,
    DispatchKey functionality = DispatchKey::Dense);
// torch.cuda.set_sync_debug_mode: 0 nothing, 1 a warning, 2 an error when the host is about to wait for the device.
void set_sync_debug_mode(int mode);
void about_to_wait();
// Whether the CPU computes what the backing lacks; if not, it is refused.
void allow_host(bool yes);
// For sessions: what the device refuses is computed in its memory, where that is the host's.
void offer_to_compute_refused();
// By namespace, name and overload, as the dispatcher writes it: aten::add.Tensor
std::optional<c10::OperatorHandle> find_operator(const std::string& name);
torch::CppFunction boxed_kernel(OpRecord* record, DispatchKey functionality);
c10::BoxedKernel boxed(OpRecord* record);  // the same, for dense tensors
bool may_wait(const c10::OperatorHandle& op);  // the host, for its result
// For composites that the real backend refuses for some dtypes: checks, then lets torch decompose as ever.
torch::CppFunction dtype_guard(OpRecord* record);
torch::CppFunction boxed_fallback(uint32_t flags, DispatchKey functionality);

// ---- direct.cpp
// A kernel with a signature for what is dense; none: the operator needs the boxed one.
std::optional<torch::CppFunction> direct_kernel(const c10::OperatorHandle& op, OpRecord* record);

// ---- determinism.cpp
const Alert* alert_of(std::string_view name);  // null: there is none on this device
// What torch says of such a kernel under torch.use_deterministic_algorithms: an error, or a warning.
void alert(const Alert& about, const c10::OperatorHandle& op, const Stack& stack);

// ---- dtypes.cpp
const Wider* wider_of(std::string_view name);  // null: nothing is to be done
// Calls `run` with arguments of a wider dtype on the stack. False: these need none, and nothing was done.
bool run_wider(const Wider& rule, const c10::OperatorHandle& op, Stack* stack, const std::function<void()>& run);

// ---- graphs.cpp; "capturing" is said of the calling thread
int64_t capture_begin(const c10::MempoolId_t& pool);
c10::MempoolId_t captured_pool();  // where memory comes from meanwhile; {0, 0}: nothing is captured
void capture_end(int64_t graph);
void capture_replay(int64_t graph);
void capture_drop(int64_t graph);
bool capturing();
[[noreturn]] void refuse_to_wait();  // what CUDA says when the host is to wait for captured work
void capture_call(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack arguments, const Stack& stack, size_t results_from);
void capture_copy(const Tensor& self, const Tensor& src);  // noted by the copy kernel, which is not boxed
void capture_own(const Tensor& made);                      // made by a kernel that is not noted
void capture_touch(const Tensor& written);                 // keep what a pre-existing tensor held before the capture

// ---- native.cpp
void register_native_kernels();
// "dispatch key \t operator" per line: what has such a kernel and needs no other.
const std::string& native_kernels();

}  // namespace torchdevice
