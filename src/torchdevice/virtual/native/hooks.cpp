// The hooks that ATen calls on a backend (MPS, CUDA, XPU), and its random generator.
//
// ATen stores each hooks object in a function-local static, so a registration after the first call has no effect. The
// classes below have no data members: their vptr replaces that of the existing object. Methods without `override` exist
// only in some of the supported torch versions. Each is checked below its class.
#include "device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>

#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace torchdevice {

namespace {

// A generator of the virtual device uses one of the backing: the same seed gives the same numbers as on the backing.
// Kernels lock the inner generator while they draw, and torch's Python code locks the outer one. Here the inner one is
// locked too.
struct VirtualGenerator final : c10::GeneratorImpl {
  at::Generator inner;
  uint64_t offset = 0;  // the philox offset of torch.cuda: the CPU has none, so it is only stored and returned

  VirtualGenerator(Device device, at::Generator draws_from)
      : GeneratorImpl(device, DispatchKeySet(config.key())), inner(std::move(draws_from)) {}
  void set_current_seed(uint64_t seed) override {
    const auto lock = locked();
    inner.set_current_seed(seed);
    offset = 0;
  }
  void set_offset(uint64_t value) override {
    offset = value;
    if (backing.is_host()) return;
    const auto lock = locked();
    inner.set_offset(value);
  }
  uint64_t get_offset() const override {
    if (backing.is_host()) return offset;
    const auto lock = locked();
    return inner.unsafeGetGeneratorImpl()->get_offset();
  }
  uint64_t current_seed() const override {
    const auto lock = locked();
    return inner.current_seed();
  }
  uint64_t seed() override {
    const auto lock = locked();
    return inner.seed();
  }
  // The state of a GPU's generator, which a checkpoint from another machine may contain, is a seed and an offset. The
  // CPU can only start from the seed.
  void set_state(const c10::TensorImpl& state) override {
    const auto lock = locked();
    auto& own = *inner.unsafeGetGeneratorImpl();
    if (backing.is_host() && !config.is_mps()) {
      at::detail::check_rng_state(state);
      if (std::array<uint64_t, 2> given; state.numel() == sizeof(given)) {
        std::memcpy(given.data(), state.data(), sizeof(given));
        own.set_current_seed(given[0]);
        offset = given[1];
        return;
      }
      TORCH_CHECK(state.numel() == own.get_state()->numel(), "RNG state is wrong size");
    }
    own.set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto lock = locked();
    return inner.unsafeGetGeneratorImpl()->get_state();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    inner = static_cast<VirtualGenerator*>(state.get())->inner;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<VirtualGenerator>(device_, inner);
  }
  VirtualGenerator* clone_impl() const override {
    const auto lock = locked();
    auto* copy = new VirtualGenerator(device_, inner.clone());
    copy->offset = offset;
    return copy;
  }
  std::unique_lock<std::mutex> locked() const {
    return std::unique_lock<std::mutex>(inner.unsafeGetGeneratorImpl()->mutex_);
  }
};

const at::Generator& default_generator(DeviceIndex device) {
  static auto* all = [] {
    auto* v = new std::vector<at::Generator>;
    for (int i = 0; i < config.count; i++) {
      // The default generator of an accelerator is free: only the virtual device can use it.
      const auto index = static_cast<DeviceIndex>(i);
      const bool own = backing.is_host() || backing.is_shared(index);
      v->push_back(at::make_generator<VirtualGenerator>(
          Device(config.type, index),
          own ? backing.new_generator(index) : at::globalContext().defaultGenerator(backing.device(index))));
    }
    return v;
  }();
  if (device < 0) device = current_device();
  TORCH_CHECK(device < static_cast<DeviceIndex>(all->size()), "invalid device ordinal ", static_cast<int>(device));
  return (*all)[device];
}

std::atomic<bool> default_generators_wanted{false};

at::Generator new_generator(DeviceIndex device) {
  if (default_generators_wanted) return default_generator(device);
  if (device < 0) device = current_device();
  TORCH_CHECK(device < config.count, "The device_index is invalid.");
  return at::make_generator<VirtualGenerator>(Device(config.type, device), backing.new_generator(device));
}

#define TORCHDEVICE_COMMON_HOOKS                                                                            \
  void init() const override {}                                                                             \
  bool isBuilt() const override { return !Computing::now(); }                                               \
  bool isAvailable() const override { return !Computing::now(); }                                           \
  bool hasPrimaryContext(DeviceIndex) const override { return true; }                                       \
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(config.count); }               \
  void setCurrentDevice(DeviceIndex d) const override { set_current_device(d); }                            \
  DeviceIndex getCurrentDevice() const override { return torchdevice::current_device(); }                   \
  DeviceIndex exchangeDevice(DeviceIndex d) const override {                                                \
    auto old = torchdevice::current_device();                                                               \
    if (d >= 0) set_current_device(d);                                                                      \
    return old;                                                                                             \
  }                                                                                                         \
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return exchangeDevice(d); }               \
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }                                   \
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }                   \
  Device getDeviceFromPtr(void*) const override { return {config.type, torchdevice::current_device()}; }    \
  const at::Generator& getDefaultGenerator(DeviceIndex i = -1) const override { return default_generator(i); } \
  at::Generator getNewGenerator(DeviceIndex i = -1) const override { return new_generator(i); }

// torch.mps.event refers to events by numbers. They are events of the device's guard.
struct MPSEvents {
  std::mutex mutex;
  std::unordered_map<uint32_t, void*> made;
  uint32_t last = 0;
  void*& at(uint32_t id) {
    std::lock_guard<std::mutex> lock(mutex);
    return made[id];
  }
};
MPSEvents& mps_events() {
  static auto* events = new MPSEvents;
  return *events;
}
const c10::impl::DeviceGuardImplInterface& own_guard() { return *c10::impl::getDeviceGuardImpl(config.type); }

struct VirtualMPSHooks final : at::MPSHooksInterface {
  TORCHDEVICE_COMMON_HOOKS
  bool hasMPS() const override { return !Computing::now(); }
  bool isOnMacOSorNewer(unsigned, unsigned) const override { return true; }
  at::Allocator* getMPSDeviceAllocator() const override { return virtual_allocator(); }
  void deviceSynchronize() const override { synchronize(0); }
  void commitStream() const override {}
  void emptyCache() const override { static_cast<c10::DeviceAllocator*>(virtual_allocator())->emptyCache(); }
  size_t getCurrentAllocatedMemory() const override { return static_cast<size_t>(figures(0).allocated_bytes[0].current); }
  size_t getDriverAllocatedMemory() const override {
    auto* allocator = static_cast<c10::DeviceAllocator*>(virtual_allocator());
    return static_cast<size_t>(allocator->getDeviceStats(0).reserved_bytes[0].current);
  }
  size_t getRecommendedMaxMemory() const override { return config.capacity; }
  virtual size_t getMaxBufferLength() const { return config.capacity; }
  // As in Metal: 0 is no limit, and 1 is the recommended maximum of the device.
  void setMemoryFraction(double share) const override {
    set_memory_limit(0, share > 0 && share < 1 ? static_cast<size_t>(config.capacity * share) : config.limit);
  }
  void profilerStartTrace(const std::string&, bool) const override {}
  void profilerStopTrace() const override {}
  uint32_t acquireEvent(bool) const override {
    auto& e = mps_events();
    std::lock_guard<std::mutex> lock(e.mutex);
    return ++e.last;
  }
  void releaseEvent(uint32_t id) const override {
    auto& e = mps_events();
    std::lock_guard<std::mutex> lock(e.mutex);
    if (void* made = e.made[id]) own_guard().destroyEvent(made, 0);
    e.made.erase(id);
  }
  void recordEvent(uint32_t id) const override {
    own_guard().record(&mps_events().at(id), current_stream(0), 0, c10::EventFlag::BACKEND_DEFAULT);
  }
  void waitForEvent(uint32_t id) const override { own_guard().block(mps_events().at(id), current_stream(0)); }
  void synchronizeEvent(uint32_t id) const override { own_guard().synchronizeEvent(mps_events().at(id)); }
  bool queryEvent(uint32_t id) const override { return own_guard().queryEvent(mps_events().at(id)); }
  double elapsedTimeOfEvents(uint32_t from, uint32_t to) const override {
    return own_guard().elapsedTime(mps_events().at(from), mps_events().at(to), 0);
  }
};

TORCHDEVICE_OVERRIDES_IF_THERE(VirtualMPSHooks, at::MPSHooksInterface, getMaxBufferLength);

struct VirtualCUDAHooks final : at::CUDAHooksInterface {
  TORCHDEVICE_COMMON_HOOKS
  bool hasCUDA() const override { return !Computing::now(); }
  bool hasCUDART() const override { return true; }
  DeviceIndex current_device() const override { return torchdevice::current_device(); }
  at::Allocator* getCUDADeviceAllocator() const override { return virtual_allocator(); }
  int getNumGPUs() const override { return config.count; }
  void deviceSynchronize(DeviceIndex device) const override { synchronize(device); }
  long versionCUDART() const override { return 12080; }
  std::string showConfig() const override { return "virtual CUDA device"; }
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const override { return 4096; }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t) const override {}
  int64_t cuFFTGetPlanCacheSize(DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(DeviceIndex) const override {}
  virtual bool isGPUArch(const std::vector<std::string>&, DeviceIndex = -1) const { return false; }
};

TORCHDEVICE_OVERRIDES_IF_THERE(VirtualCUDAHooks, at::CUDAHooksInterface, isGPUArch);

struct VirtualXPUHooks final : at::XPUHooksInterface {
  TORCHDEVICE_COMMON_HOOKS
  bool hasXPU() const override { return !Computing::now(); }
  std::string showConfig() const override { return "virtual XPU device"; }
  DeviceIndex getNumGPUs() const override { return static_cast<DeviceIndex>(config.count); }
  DeviceIndex current_device() const override { return torchdevice::current_device(); }
  void deviceSynchronize(DeviceIndex device) const override { synchronize(device); }
  int32_t getGlobalIdxFromDevice(const Device& d) const override { return d.index(); }
};

template <class Ours, class Base>
void transplant(const Base& theirs) {
  static_assert(sizeof(Ours) == sizeof(Base), "a hooks class may have no data members");
  static auto* ours = new Ours;
  std::memcpy(const_cast<void*>(static_cast<const void*>(&theirs)), static_cast<void*>(ours), sizeof(void*));
}

}  // namespace

// The other types get the default answers of the interface ("not built"): torch refuses two accelerators in one
// process, and a CUDA build counts as one even without a visible GPU.
void install_hooks() {
  const auto is_backing = [](DeviceType type) { return type == backing.type(); };
  if (config.type == DeviceType::MPS) transplant<VirtualMPSHooks>(at::detail::getMPSHooks());
  else if (!is_backing(DeviceType::MPS)) transplant<at::MPSHooksInterface>(at::detail::getMPSHooks());
  if (config.type == DeviceType::CUDA) transplant<VirtualCUDAHooks>(at::detail::getCUDAHooks());
  else if (!is_backing(DeviceType::CUDA)) transplant<at::CUDAHooksInterface>(at::detail::getCUDAHooks());
  if (config.type == DeviceType::XPU) transplant<VirtualXPUHooks>(at::detail::getXPUHooks());
  else if (!is_backing(DeviceType::XPU)) transplant<at::XPUHooksInterface>(at::detail::getXPUHooks());
  hide_backing();
}

const at::Generator& virtual_generator(const std::optional<at::Generator>& asked, Device device) {
  if (!asked.has_value() || !asked->defined()) return default_generator(device.index());
  TORCH_CHECK(
      asked->device().type() == config.type, "Expected a '", config.type, "' device type for generator but found '",
      asked->device().type(), "'");
  return *asked;
}

at::Generator backing_generator(const std::optional<at::Generator>& asked, Device device) {
  return static_cast<VirtualGenerator*>(virtual_generator(asked, device).unsafeGetGeneratorImpl())->inner;
}

void hand_out_default_generators(bool yes) { default_generators_wanted = yes; }

}  // namespace torchdevice
