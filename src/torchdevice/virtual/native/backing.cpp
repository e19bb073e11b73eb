// The device that holds the bytes of virtual tensors and computes: the CPU, or a real accelerator. All calls use ATen's
// own interfaces (allocator, guard, hooks, dispatch keys), so CUDA, XPU and MPS need no separate code.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <ATen/ops/from_blob.h>

#include <dlfcn.h>
#include <pthread.h>

#include <cstring>

namespace torchdevice {

Backing backing;
constinit thread_local bool Computing::now_ = false;

namespace {
std::atomic<bool> forked{false};
}

c10::BackendComponent backend_of(DeviceType type) {
  switch (type) {
    case DeviceType::CPU:
      return c10::BackendComponent::CPUBit;
    case DeviceType::CUDA:
      return c10::BackendComponent::CUDABit;
    case DeviceType::XPU:
      return c10::BackendComponent::XPUBit;
    case DeviceType::MPS:
      return c10::BackendComponent::MPSBit;
    default:
      TORCH_CHECK(false, "type ", type, " can be neither a virtual device nor what computes for one");
  }
}

const at::AcceleratorHooksInterface& Backing::hooks() const {
  return at::globalContext().getAcceleratorHooksInterface(type_);
}

c10::DeviceAllocator* Backing::device_allocator() const { return dynamic_cast<c10::DeviceAllocator*>(allocator()); }

void Backing::empty_cache(c10::MempoolId_t pool) const {
  if (auto* theirs = device_allocator()) return theirs->emptyCache(pool);
  if (type_ == DeviceType::MPS) at::detail::getMPSHooks().emptyCache();  // older torch versions have no DeviceAllocator for it
}

// An address of Metal's memory is an object, which the host must not read: torch's allocator for MPS would.
void Backing::copy_bytes(void* to, const void* from, size_t bytes) const {
  if (type_ != DeviceType::MPS) return allocator()->copy_data(to, from, bytes);
  const Device there(type_, 0);
  const auto tensor = [&](void* data) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(there);
    return at::for_blob(data, {static_cast<int64_t>(bytes)}).options(options).target_device(there).make_tensor();
  };
  Computing computing;
  at::AutoDispatchBelowADInplaceOrView guard;
  tensor(to).copy_(tensor(const_cast<void*>(from)));
}

void Backing::choose(DeviceType type) {
  backend_ = backend_of(type);
  type_ = type;
  if (is_host()) return;
  TORCH_CHECK(type != config.type, "a virtual ", config.type, " device cannot be on the real one");
  TORCH_CHECK(hooks().isAvailable(), "there is no ", type, " device that could compute");
  at::globalContext().lazyInitDevice(type);
  guard_ = c10::impl::getDeviceGuardImpl(type);
  count_ = std::max<DeviceIndex>(guard_->deviceCount(), 1);
  counts_ = device_allocator() != nullptr;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

bool lost_by_fork() { return forked; }

// Streams of the backing and of the virtual device have the same ids, or the backing has only the default stream.
c10::Stream Backing::stream(const c10::Stream& virtual_stream) const {
  const Device there = device(virtual_stream.device_index());
  return has_streams() ? c10::Stream(c10::Stream::UNSAFE, there, virtual_stream.id()) : c10::Stream(c10::Stream::DEFAULT, there);
}

c10::Stream Backing::label(const c10::Stream& stream, DeviceIndex index) const {
  return c10::Stream(c10::Stream::UNSAFE, Device(config.type, index), stream.id());
}

bool Backing::computes(const c10::OperatorHandle& op, DispatchKey functionality) const {
  return is_host() || functionality != DispatchKey::Dense || op.hasComputedKernelForDispatchKey(key());
}

at::Generator Backing::new_generator(DeviceIndex index) const {
  if (is_host()) return at::detail::createCPUGenerator(c10::default_rng_seed_val);
  auto made = hooks().getNewGenerator(device(index).index());
  made.set_current_seed(c10::default_rng_seed_val);
  return made;
}

namespace {

bool is_computing(const void*) { return Computing::now(); }

// The index of a virtual method in the vtable of its class, in the Itanium ABI, which all supported compilers use.
template <class Method>
size_t slot_of(Method method) {
  intptr_t raw[2];
  static_assert(sizeof raw == sizeof method);
  std::memcpy(raw, &method, sizeof raw);
#if defined(__aarch64__)
  return static_cast<size_t>(raw[0]) / sizeof(void*);  // on that platform the other half marks the method as virtual
#else
  return static_cast<size_t>(raw[0] - 1) / sizeof(void*);
#endif
}

// The number of virtual methods of a class. The linker provides the end of the vtable.
template <class Hooks>
size_t methods_of() {
  static const auto* plain = new Hooks;
  void** table;
  std::memcpy(&table, static_cast<const void*>(plain), sizeof table);
  Dl_info whole, here;
  TORCH_CHECK(dladdr(table, &whole) && whole.dli_saddr, "the methods of torch's hooks cannot be counted");
  size_t count = 0;
  while (dladdr(table + count, &here) && here.dli_saddr == whole.dli_saddr) count++;
  return count;
}

// The object keeps its class and its state. Some queries return false, except for the kernels of the backing. Its
// vtable is read-only, so the object gets a copy of the methods that torch can call: those of the interface.
template <class Hooks, class... Questions>
void deny(const Hooks& object, Questions... questions) {
  constexpr size_t kBefore = 2;  // the entries before the methods: the offset of the object and its class
  const size_t count = methods_of<Hooks>();
  void** table;
  std::memcpy(&table, static_cast<const void*>(&object), sizeof table);
  auto** copy = new void*[kBefore + count];  // never freed
  std::memcpy(copy, table - kBefore, (kBefore + count) * sizeof(void*));
  for (const size_t slot : {slot_of(questions)...}) copy[kBefore + slot] = reinterpret_cast<void*>(&is_computing);
  table = copy + kBefore;
  std::memcpy(const_cast<void*>(static_cast<const void*>(&object)), &table, sizeof table);
}

}  // namespace

void hide_backing() {
  if (backing.type() == DeviceType::CUDA)
    deny(at::detail::getCUDAHooks(), &at::CUDAHooksInterface::hasCUDA, &at::CUDAHooksInterface::isBuilt,
         &at::CUDAHooksInterface::isAvailable);
  if (backing.type() == DeviceType::XPU)
    deny(at::detail::getXPUHooks(), &at::XPUHooksInterface::hasXPU, &at::XPUHooksInterface::isBuilt,
         &at::XPUHooksInterface::isAvailable);
  if (backing.type() == DeviceType::MPS)
    deny(at::detail::getMPSHooks(), &at::MPSHooksInterface::hasMPS, &at::MPSHooksInterface::isBuilt,
         &at::MPSHooksInterface::isAvailable);
}

}  // namespace torchdevice
