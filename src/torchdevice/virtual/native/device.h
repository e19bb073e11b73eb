// What the parts of the virtual-device library share: the configuration, and what each part offers to the others.
//
//   memory.cpp   the allocator with its per-device statistics and limit, pinned host memory
//   guard.cpp    current device, streams, events; the autograd engine's queues
//   hooks.cpp    what ATen asks of a backend (MPS, CUDA, XPU hooks) and the random generator
//   relabel.cpp  virtual tensor <-> physical tensor over the same bytes, for every layout
//   kernel.cpp   the one boxed kernel behind (nearly) all operators, counts, refusals
//   graphs.cpp   capture and replay of calls
//   native.cpp   operators that need a kernel of their own
//   api.cpp      the C functions that Python calls; nothing else is visible from outside
//
// A *virtual* tensor carries the virtual device type (mps, cuda, xpu). Its bytes belong to the *physical* device, whose
// kernels compute. The physical device is a field of the configuration; nothing here assumes that it is the CPU but the
// default value.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
  Device physical = Device(c10::kCPU);
  c10::BackendComponent physical_backend = c10::BackendComponent::CPUBit;

  DispatchKey key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend);
  }
  DispatchKey physical_key(DispatchKey functionality = DispatchKey::Dense) const {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, physical_backend);
  }
  bool is_mps() const { return type == DeviceType::MPS; }
};
extern Config config;

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
inline bool is_physical(const Tensor& t) { return t.device().type() == config.physical.type(); }
// Raises what the real backend raises for a dtype that it cannot hold.
void check_dtype(c10::ScalarType dtype);

// ---- memory.cpp
struct Usage {  // of one device; `all` in the words of torch.cuda.memory_stats
  std::atomic<size_t> limit{0};  // bytes that it may hold; 0: no limit
  std::atomic<int64_t> bytes{0}, bytes_peak{0}, bytes_allocated{0}, bytes_freed{0};
  std::atomic<int64_t> blocks{0}, blocks_peak{0}, blocks_allocated{0}, blocks_freed{0};
  std::atomic<int64_t> ooms{0};
};
Usage& usage(DeviceIndex device);
void reset_peak(DeviceIndex device);
void reset_accumulated(DeviceIndex device);
c10::Allocator* virtual_allocator();
c10::Allocator* physical_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
// The same bytes under the virtual device's label; counted until they are freed. Raises when the limit is passed.
c10::DataPtr label(c10::DataPtr&& data, size_t bytes, Device device);
// The physical device had no memory left: the virtual one says so in the words and the class of the real one.
void raise_if_full(const c10::Error& error, Device device);
void install_allocators();

// ---- guard.cpp
DeviceIndex current_device();
void set_current_device(DeviceIndex device);  // raises for an ordinal that does not exist
inline Device resolve(Device d) { return d.has_index() ? d : Device(d.type(), current_device()); }
c10::Stream current_stream(DeviceIndex device);
void set_current_stream(c10::Stream stream);
c10::Stream new_stream(DeviceIndex device);
double milliseconds();                      // a monotonic clock
double event_milliseconds(int64_t event);  // when an event, given by its id, was recorded
void install_guard();
// The autograd engine makes its queues at the first backward. True: that was before the device existed, and it was repaired.
bool repair_autograd_queues();
bool autograd_threads_run();

// ---- hooks.cpp
void install_hooks();
at::Generator physical_generator(const std::optional<at::Generator>& asked, Device device);
// While set, torch.Generator(device=…) hands out the device's default generator instead of a new one.
void hand_out_default_generators(bool yes);

// ---- kernel.cpp
enum Flag : uint32_t {  // Python gives them by name: kFlags in api.cpp
  kNoDeviceCheck = 1,  // 0-dim tensors of the physical device may take part (torch: `device_check: NoCheck`)
  kAnyDevice = 2,      // tensors of the physical device may take part (copies)
  kDeny = 4,           // the real backend lacks it: NotImplementedError
  kWarn = 8,           // the real backend would fall back to the CPU: run, warn once
  kEvenSizes = 16,     // adaptive pooling: the real backend refuses sizes that do not divide
};
struct OpRecord {
  std::string name;
  uint32_t flags = 0;
  uint64_t denied_dtypes = 0;  // dtypes of the first tensor that the real backend's kernel refuses
  std::atomic<uint64_t> calls{0}, denied{0};
  std::atomic<const std::vector<uint8_t>*> plan{nullptr};  // which arguments matter; made at the first call
};
OpRecord* make_record(
    std::string name, uint32_t flags, uint64_t denied_dtypes, DispatchKey functionality = DispatchKey::Dense);
std::string dump_records();
void reset_records();
// What the boxed kernel does, for kernels that only prepare its arguments.
void run_boxed(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack, OpRecord* record,
    DispatchKey functionality = DispatchKey::Dense);
torch::CppFunction boxed_kernel(OpRecord* record, DispatchKey functionality);
// For composites that the real backend refuses for some dtypes: checks, then lets torch decompose as ever.
torch::CppFunction dtype_guard(OpRecord* record);
torch::CppFunction boxed_fallback(uint32_t flags, DispatchKey functionality);

// ---- graphs.cpp; "capturing" is said of the calling thread
int64_t capture_begin();
void capture_end(int64_t graph);
void capture_replay(int64_t graph);
void capture_drop(int64_t graph);
bool capturing();
[[noreturn]] void refuse_to_wait();  // what CUDA says when the host is to wait for captured work
void capture_call(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack arguments, const Stack& stack, size_t results_from);
void capture_copy(const Tensor& self, const Tensor& src);  // noted by the copy kernel, which is not boxed
void capture_touch(const Tensor& written);                 // keep what a pre-existing tensor held before the capture

// ---- native.cpp
void register_native_kernels();
// "dispatch key \t operator" per line: what has such a kernel and needs no other.
const std::string& native_kernels();

}  // namespace torchdevice
