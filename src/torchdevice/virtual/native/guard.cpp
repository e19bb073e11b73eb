// Current device, streams and events of the virtual devices, and the autograd engine's per-device queues.
// On the CPU every operation runs immediately on the calling thread. A stream is an id with the time until which it is
// busy; an event is a time stamp. On an accelerator, its own streams and events are used. On a Mac, which has one stream,
// a stream is an id, and all of them are that one.
#include "device.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/profiler/stubs/base.h>
#if __has_include(<torch/csrc/distributed/c10d/reducer_timer.hpp>)
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#define TORCHDEVICE_HAS_DDP_TIMER
#endif

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace torchdevice {

namespace {

thread_local DeviceIndex current = 0;
thread_local c10::StreamId streams[kMaxDevices] = {};  // 0 is the default stream
// As on CUDA, a device has a fixed number of streams per priority, and they are handed out in turn. Each stream has its
// own cache of memory, so a program that makes a stream per step would otherwise use more memory with every step.
constexpr int kPriorities = 4;  // CUDA: 0 to -3, XPU: 1 to -1 (answers/table.py)
constexpr uint32_t kStreamsPerPriority = 32;
std::atomic<uint32_t> streams_made[kMaxDevices][kPriorities] = {};
// Whether a thread may be on another stream of the accelerator than the initial one, whose id is 0. Until then nobody
// has to ask the accelerator.
std::atomic<bool> streams_change{false};

// The accelerator's streams that programs have, by their ids. An accelerator does not check the id of a stream.
struct HandedOut {
  std::mutex mutex;
  std::set<c10::StreamId> ids;
};
HandedOut& handed_out() {
  static auto* h = outlives_forks<HandedOut, &handed_out>();
  return *h;
}

// On a CPU only `torch.cuda._sleep` takes time on a stream: the time until which the stream is busy.
struct Busy {
  std::mutex mutex;
  std::map<std::pair<DeviceIndex, c10::StreamId>, double> until;
  std::atomic<bool> ever{false};  // so that programs that never sleep check only this

  double of(const c10::Stream& stream) {
    if (C10_LIKELY(!ever.load(std::memory_order_relaxed))) return 0.0;
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = until.find({stream.device_index(), stream.id()});
    return found == until.end() ? 0.0 : found->second;
  }
  double of(DeviceIndex device) {
    if (C10_LIKELY(!ever.load(std::memory_order_relaxed))) return 0.0;
    std::lock_guard<std::mutex> lock(mutex);
    double last = 0.0;
    for (const auto& [stream, end] : until)
      if (stream.first == device) last = std::max(last, end);
    return last;
  }
  void extend(const c10::Stream& stream, double end) {
    std::lock_guard<std::mutex> lock(mutex);
    auto& known = until[{stream.device_index(), stream.id()}];
    known = std::max(known, end);
    ever = true;
  }
};
Busy& busy() {
  static auto* b = outlives_forks<Busy, &busy>();
  return *b;
}
void wait_until(double then) {
  const double left = then - milliseconds();
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(left));
}

struct EventData {
  double recorded_at = 0.0;
  DeviceIndex device = -1;  // not recorded yet
  void* of_backing = nullptr;
};
void* behind(void* event) { return event ? static_cast<EventData*>(event)->of_backing : nullptr; }

// Python refers to events by their address. Only existing events are dereferenced.
struct LiveEvents {
  std::mutex mutex;
  std::set<const EventData*> all;
};
LiveEvents& live_events() {
  static auto* events = outlives_forks<LiveEvents, &live_events>();
  return *events;
}

DeviceIndex checked(DeviceIndex device) {
  if (C10_UNLIKELY(device >= config.count)) {
    if (config.type == DeviceType::CUDA) raise_driver_error(kInvalidDevice);
    TORCH_CHECK(false, "The device index is out of range. It must be in [0, ", config.count, "), but got ", int(device), ".");
  }
  return device < 0 ? current : device;
}

// torch calls it on guards since 2.11.
template <class Beneath>
void* native_handle(const Beneath& beneath, const c10::Stream& stream) {
  if constexpr (requires { beneath.guard().getStreamNativeHandle(stream); })
    if (beneath.has_streams()) return beneath.guard().getStreamNativeHandle(beneath.stream(stream));
  return reinterpret_cast<void*>(stream.id());
}

struct VirtualGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return config.type; }
  Device exchangeDevice(Device d) const override {
    const Device old(config.type, current);
    setDevice(d);
    return old;
  }
  Device getDevice() const override { return {config.type, current}; }
  void setDevice(Device d) const override {
    TORCH_CHECK(d.type() == config.type, "Expected a ", config.type, " device, but got ", d);
    current = checked(d.index());
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0 && d.index() < config.count) current = d.index();
  }
  c10::Stream getStream(Device d) const override { return current_stream(d.index()); }
  c10::Stream getDefaultStream(Device d) const override {
    if (!backing.is_host()) {
      const auto index = checked(d.index());
      return backing.label(backing.guard().getDefaultStream(backing.device(index)), index);
    }
    return c10::Stream(c10::Stream::DEFAULT, Device(config.type, checked(d.index())));
  }
  c10::Stream getStreamFromGlobalPool(Device d, bool high) const override { return new_stream(d.index(), high ? -1 : 0); }
  c10::Stream getNewStream(Device d, int priority) const override { return new_stream(d.index(), priority); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    auto old = current_stream(s.device_index());
    set_current_stream(s);
    return old;
  }
  virtual void* getStreamNativeHandle(const c10::Stream s) const { return native_handle(backing, s); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(config.count); }
  void destroyEvent(void* e, const DeviceIndex device) const noexcept override {
    auto* event = static_cast<EventData*>(e);
    if (!event) return;
    auto& live = live_events();
    {
      std::lock_guard<std::mutex> lock(live.mutex);
      live.all.erase(event);
    }
    if (event->of_backing) backing.guard().destroyEvent(event->of_backing, backing.device(device).index());
    delete event;
  }
  void record(void** e, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    if (!*e) {
      auto* made = new EventData;
      auto& live = live_events();
      std::lock_guard<std::mutex> lock(live.mutex);
      live.all.insert(made);
      *e = made;
    }
    auto* event = static_cast<EventData*>(*e);
    const DeviceIndex on = checked(stream.device_index());
    TORCH_CHECK(config.type != DeviceType::CUDA || event->device < 0 || event->device == on,
                "Event device ", int(event->device), " does not match recording stream's device ", int(on), ".");
    event->device = on;
    event->recorded_at = std::max(milliseconds(), busy().of(stream));
    if (backing.is_host()) return;
    const auto index = backing.device(on).index();
    backing.guard().record(&event->of_backing, backing.stream(stream), index, flag);
  }
  void block(void* e, const c10::Stream& stream) const override {
    if (!e) return;
    if (!backing.is_host()) return backing.guard().block(behind(e), backing.stream(stream));
    const double then = static_cast<EventData*>(e)->recorded_at;
    if (then > milliseconds()) busy().extend(stream, then);
  }
  bool queryEvent(void* e) const override {
    if (!backing.is_host()) return backing.guard().queryEvent(behind(e));
    return !e || static_cast<EventData*>(e)->recorded_at <= milliseconds();
  }
  bool queryStream(const c10::Stream& stream) const override {
    if (!backing.is_host()) return backing.guard().queryStream(backing.stream(stream));
    return busy().of(stream) <= milliseconds();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (capturing()) refuse_to_wait();
    if (!backing.is_host()) return backing.guard().synchronizeStream(backing.stream(stream));
    wait_until(busy().of(stream));
  }
  virtual bool isStreamCapturing(const c10::Stream&) const { return capturing(); }
  void synchronizeEvent(void* e) const override {
    if (!e) return;
    if (!backing.is_host()) return backing.guard().synchronizeEvent(behind(e));
    wait_until(static_cast<EventData*>(e)->recorded_at);
  }
  void synchronizeDevice(const DeviceIndex device) const override { synchronize(device); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    use_on(data, stream);
  }
  double elapsedTime(void* a, void* b, const DeviceIndex device) const override {
    TORCH_CHECK(a && b, "Both events must be recorded before calculating elapsed time.");
    auto *from = static_cast<EventData*>(a), *to = static_cast<EventData*>(b);
    if (from->device != to->device) raise_driver_error(kInvalidHandle);
    // torch waits for both events on mps, also if mps is the accelerator. On others, events that have not ended are an error.
    if (config.is_mps()) {
      synchronizeEvent(a);
      synchronizeEvent(b);
    } else if (backing.type() != DeviceType::MPS && !(queryEvent(a) && queryEvent(b))) {
      raise_driver_error(kNotReady);
    }
    if (!backing.is_host()) return backing.guard().elapsedTime(behind(a), behind(b), backing.device(checked(device)).index());
    return to->recorded_at - from->recorded_at;
  }
#if __has_include(<c10/core/DeviceCapability.h>)
  c10::DeviceCapability getDeviceCapability(Device) const override {
    c10::DeviceCapability c;
    c.capability_data.capability_bits &= ~config.denied_dtypes;
    return c;
  }
#endif
};

TORCHDEVICE_OVERRIDES_IF_THERE(VirtualGuard, c10::impl::DeviceGuardImplInterface, getStreamNativeHandle);  // torch 2.11
TORCHDEVICE_OVERRIDES_IF_THERE(VirtualGuard, c10::impl::DeviceGuardImplInterface, isStreamCapturing);

// The members of the engine are protected; a derived class can access them.
struct EnginePeek : torch::autograd::Engine {
  static bool started(Engine& e) { return (e.*(&EnginePeek::thread_pool_shared_)) != nullptr; }
  static size_t queues(Engine& e) { return (e.*(&EnginePeek::device_ready_queues_)).size(); }
  static void start(Engine& e) { (e.*(&EnginePeek::start_device_threads))(); }
};

// torch.profiler with ProfilerActivity.CUDA: host times are used as device times.
struct ProfilerMethods final : torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;
  void record(DeviceIndex* device, Event* event, int64_t* host_ns) const override {
    const double now = milliseconds();
    if (device) *device = current;
    *event = std::make_shared<double>(now);
    if (host_ns) *host_ns = static_cast<int64_t>(now * 1e6);
  }
  float elapsed(const Event* from, const Event* to) const override {  // microseconds
    return static_cast<float>((*static_cast<double*>(to->get()) - *static_cast<double*>(from->get())) * 1e3);
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int i = 0; i < config.count; i++) op(i);
  }
  void synchronize() const override {}
};

#ifdef TORCHDEVICE_HAS_DDP_TIMER
// DistributedDataParallel requires a timer for its device type.
struct DDPTimer final : c10d::Timer {
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;
    return *to - *from;
  }
};
#endif

}  // namespace

void raise_driver_error(const DriverError& error) {
  const std::string said = c10::str(c10::DeviceTypeName(config.type), " error: ", error.says);
  if (config.type == DeviceType::CUDA) throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, error.code, said);
  TORCH_CHECK(false, said);
  std::abort();  // unreachable
}

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

double milliseconds_between(int64_t from, int64_t to) {
  auto *first = reinterpret_cast<EventData*>(from), *second = reinterpret_cast<EventData*>(to);
  {
    auto& live = live_events();
    std::lock_guard<std::mutex> lock(live.mutex);
    TORCH_CHECK(
        live.all.count(first) && live.all.count(second), "Both events must be recorded before calculating elapsed time.");
  }
  // The caller owns both. The lock is not held, because this may wait.
  return c10::impl::getDeviceGuardImpl(config.type)->elapsedTime(first, second, current);
}

void synchronize(DeviceIndex device) {
  if (capturing()) refuse_to_wait();
  if (!backing.is_host()) return backing.guard().synchronizeDevice(backing.device(checked(device)).index());
  wait_until(busy().of(checked(device)));
}

void keep_busy(double for_milliseconds) {
  const auto stream = current_stream(current);
  busy().extend(stream, std::max(milliseconds(), busy().of(stream)) + for_milliseconds);
}

double busy_until(const c10::Stream& stream) { return busy().of(stream); }

void wait_for_current_stream(DeviceIndex device) {
  if (backing.is_host() && busy().ever) wait_until(busy().of(current_stream(device)));
}

DeviceIndex current_device() { return current; }

void set_current_device(DeviceIndex device) { current = checked(device); }

c10::Stream current_stream(DeviceIndex device) {
  device = checked(device);
  c10::StreamId id = 0;
  if (!backing.has_streams()) id = streams[device];
  else if (streams_change.load(std::memory_order_relaxed)) id = backing.guard().getStream(backing.device(device)).id();
  return c10::Stream(c10::Stream::UNSAFE, Device(config.type, device), id);
}

void set_current_stream(c10::Stream stream) {
  const DeviceIndex device = checked(stream.device_index());
  if (!backing.has_streams()) {
    streams[device] = stream.id();
  } else if (stream.id() != 0 || streams_change.load(std::memory_order_relaxed)) {
    streams_change = true;
    backing.guard().exchangeStream(backing.stream(stream));
  }
}

void expect_other_streams() { streams_change = backing.has_streams(); }

bool has_stream(DeviceIndex device, c10::StreamId id) {
  if (!backing.has_streams()) return id >= 0;
  if (id == current_stream(device).id() || id == backing.guard().getDefaultStream(backing.device(device)).id()) return true;
  std::lock_guard<std::mutex> lock(handed_out().mutex);
  return handed_out().ids.count(id) != 0;
}

c10::Stream new_stream(DeviceIndex device, int priority) {
  device = checked(device);
  if (backing.has_streams()) {
    const auto stream = backing.guard().getStreamFromGlobalPool(backing.device(device), priority < 0);
    std::lock_guard<std::mutex> lock(handed_out().mutex);
    handed_out().ids.insert(stream.id());
    return backing.label(stream, device);
  }
  const bool is_xpu = config.type == DeviceType::XPU;
  const int level = is_xpu ? 1 - std::clamp(priority, -1, 1) : std::clamp(-priority, 0, kPriorities - 1);
  const uint32_t place = streams_made[device][level]++ % kStreamsPerPriority;
  const c10::StreamId id = 1 + level * static_cast<c10::StreamId>(kStreamsPerPriority) + place;  // 0: the default stream
  return c10::Stream(c10::Stream::UNSAFE, Device(config.type, device), id);
}

void install_guard() {
  for (DeviceIndex i = 0; backing.has_streams() && i < config.count; i++)
    if (backing.guard().getStream(backing.device(i)).id() != 0) streams_change = true;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(config.type)].store(new VirtualGuard);
  if (config.type == DeviceType::CUDA) torch::profiler::impl::registerCUDAMethods(new ProfilerMethods);
#ifdef TORCHDEVICE_HAS_DDP_TIMER
  c10d::TimerRegistry()->Register(
      config.type, [](Device) -> std::unique_ptr<c10d::Timer> { return std::make_unique<DDPTimer>(); },
      c10::REGISTRY_PREFERRED);
#endif
}

bool autograd_threads_run() { return EnginePeek::queues(torch::autograd::Engine::get_default_engine()) > 0; }

bool repair_autograd_queues() {
  auto& engine = torch::autograd::Engine::get_default_engine();
  if (!EnginePeek::started(engine) || EnginePeek::queues(engine) >= static_cast<size_t>(config.count)) return false;
  EnginePeek::start(engine);
  return true;
}

}  // namespace torchdevice
