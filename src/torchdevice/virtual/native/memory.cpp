// Memory of the virtual devices: statistics and a limit per device, pinned host memory.
// The bytes come from the backing's own allocator; here they get the virtual label and are counted.
#include "device.h"

#include <ATen/Context.h>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace torchdevice {

Config config;

void check_dtype(c10::ScalarType dtype) {
  if (C10_LIKELY(((config.denied_dtypes >> static_cast<int>(dtype)) & 1) == 0)) return;
  TORCH_CHECK_TYPE(
      dtype != c10::ScalarType::Double,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
      "Please use float32 instead.");
  TORCH_CHECK_TYPE(
      false, "Trying to convert ", dtype, " to the MPS backend but it does not have support for that dtype.");
}

Usage& usage(DeviceIndex device) {
  static Usage all[kMaxDevices];
  TORCH_CHECK(device >= 0 && device < config.count, "invalid device ordinal ", static_cast<int>(device));
  return all[device];
}

namespace {

void raise_peak(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::string gib(size_t bytes) {
  char text[32];
  if (bytes >= (size_t(1) << 30))
    snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else
    snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

void raise_out_of_memory(size_t asked, Device device) {
  Usage& u = usage(device.index());
  u.ooms++;
  const size_t held = u.bytes;
  const size_t limit = u.limit, most = limit ? limit : config.capacity;
  const size_t free = most > held ? most - held : 0;
  note_out_of_memory(static_cast<int64_t>(asked), device.index(), static_cast<int64_t>(most), static_cast<int64_t>(free));
  // More than a number of the device's own has room for.
  TORCH_CHECK_WITH(
      OutOfMemoryError, config.type != DeviceType::CUDA || asked < (size_t(1) << 60),
      "CUDA out of memory. Tried to allocate more than 1EB memory.");
  // The MPS backend raises a plain RuntimeError, the others torch.OutOfMemoryError.
  TORCH_CHECK(
      !config.is_mps(), "MPS backend out of memory (MPS allocated: ", gib(held), ", other allocations: 0 bytes, max allowed: ",
      gib(most), "). Tried to allocate ", gib(asked), " on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to ",
      "disable upper limit for memory allocations (may cause system failure).");
  const char* name = device.type() == DeviceType::CUDA ? "CUDA" : "XPU";
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, name, " out of memory. Tried to allocate ", gib(asked), ". GPU ",
      static_cast<int>(device.index()), " has a total capacity of ", gib(most), " of which ", gib(free),
      " is free. Of the allocated memory ", gib(held), " is allocated by PyTorch.");
}

struct Block : Held {
  c10::DataPtr inner;
  Twin twin{};
  Block(c10::DataPtr&& data, int64_t n, DeviceIndex on) : Held{data.get(), n, on}, inner(std::move(data)) {
    note_allocation(*this);
    tell_profiler(bytes);
  }
  ~Block() {
    note_free(*this);
    tell_profiler(-bytes);
  }
  // torch.profiler with profile_memory, which has no sizes of memory that it was not told of.
  void tell_profiler(int64_t change) const {
    if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
    const int64_t held = usage(device).bytes;
    c10::reportMemoryUsageToProfiler(
        const_cast<void*>(address), change, static_cast<size_t>(held), static_cast<size_t>(held), Device(config.type, device));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

void free_block(void* p) {
  auto* block = static_cast<Block*>(p);
  Usage& u = usage(block->device);
  u.bytes -= block->bytes;
  u.bytes_freed += block->bytes;
  u.blocks--;
  u.blocks_freed++;
  delete block;
}

// Blocks whose memory tensors share until one of them writes. torch wants such memory to be its own context.
struct SharedBlocks {
  std::mutex mutex;
  std::unordered_map<const void*, Block*> all;  // by address
};
SharedBlocks& shared_blocks() {
  static auto* blocks = new SharedBlocks;  // outlives every tensor
  return *blocks;
}
void free_shared(void* address) {
  auto& shared = shared_blocks();
  Block* block;
  {
    std::lock_guard<std::mutex> lock(shared.mutex);
    const auto found = shared.all.find(address);
    block = found->second;
    shared.all.erase(found);
  }
  free_block(block);
}

Block* block_of(const c10::DataPtr& data) {  // null: memory that was not allocated under the virtual label
  if (C10_LIKELY(data.get_deleter() == &free_block)) return static_cast<Block*>(data.get_context());
  if (data.get_deleter() != &free_shared) return nullptr;
  auto& shared = shared_blocks();
  std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.all.at(data.get());
}

bool passes_limit(const Usage& u, int64_t held, int64_t more) {
  const size_t limit = u.limit;
  return limit && static_cast<size_t>(held + more) > limit;
}

// The allocator that knows what the devices of the backing hold. A device that several virtual ones share says it of all.
c10::DeviceAllocator* statistics_of_backing(DeviceIndex device = 0) {
  return backing.is_host() || backing.is_shared(device) ? nullptr : backing.device_allocator();
}

// torch 2.10 asks allocators for it; not all of them know.
template <class Allocator>
std::optional<size_t> free_memory_of(Allocator& theirs, DeviceIndex device) {
  if constexpr (requires { theirs.getMemoryInfo(device); }) {
    try {
      return theirs.getMemoryInfo(device).first;
    } catch (const c10::NotImplementedError&) {
    }
  }
  return std::nullopt;
}

// "Tried to allocate 20.00 MiB" in the words of an accelerator.
size_t asked_for(std::string_view said) {
  const std::string_view before = "Tried to allocate ";
  const size_t at = said.find(before);
  if (at == said.npos) return 0;
  char* unit;
  const double number = std::strtod(said.data() + at + before.size(), &unit);
  const double factor = unit[1] == 'G' ? double(1 << 30) : unit[1] == 'M' ? double(1 << 20) : unit[1] == 'K' ? 1024.0 : 1.0;
  return static_cast<size_t>(number * factor);
}

struct VirtualAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const Device device(config.type, current_device());
    const Usage& u = usage(device.index());  // refused before the host is asked for so much
    if (C10_UNLIKELY(passes_limit(u, u.bytes, static_cast<int64_t>(bytes)))) raise_out_of_memory(bytes, device);
    try {
      if (backing.is_host()) return label(backing.allocator()->allocate(bytes), bytes, device);
      TORCH_CHECK(
          !lost_by_fork(), "Cannot re-initialize ", c10::DeviceTypeName(config.type), " in forked subprocess. To use ",
          c10::DeviceTypeName(config.type), " with multiprocessing, you must use the 'spawn' start method");
      c10::DeviceGuard guard(backing.device(device.index()));
      return label(backing.allocator()->allocate(bytes), bytes, device);
    } catch (const c10::Error& e) {
      raise_if_full(e, device);
      throw;
    }
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (backing.is_host()) return default_copy_data(to, from, bytes);
    backing.allocator()->copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool) override {
    if (auto* theirs = statistics_of_backing()) theirs->emptyCache(pool);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (auto* theirs = statistics_of_backing()) theirs->recordStream(unlabelled(data), backing.stream(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    Usage& u = usage(device);
    if (auto* theirs = statistics_of_backing(device)) {
      auto stats = theirs->getDeviceStats(device);
      stats.num_ooms = u.ooms;  // theirs, and those of a limit
      return stats;
    }
    c10::CachingDeviceAllocator::DeviceStats s;
    for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) {
      (*stat)[0].current = u.bytes;
      (*stat)[0].peak = u.bytes_peak;
      (*stat)[0].allocated = u.bytes_allocated;
      (*stat)[0].freed = u.bytes_freed;
    }
    for (auto* stat : {&s.allocation, &s.segment, &s.active}) {
      (*stat)[0].current = u.blocks;
      (*stat)[0].peak = u.blocks_peak;
      (*stat)[0].allocated = u.blocks_allocated;
      (*stat)[0].freed = u.blocks_freed;
    }
    s.num_ooms = u.ooms;
    return s;
  }
  void resetAccumulatedStats(DeviceIndex device) override { reset_accumulated(device); }
  void resetPeakStats(DeviceIndex device) override { reset_peak(device); }
  virtual std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) {
    const size_t limit = usage(device).limit;
    return {free_memory(device), limit ? limit : config.capacity};
  }
};

TORCHDEVICE_OVERRIDES_IF_THERE(VirtualAllocator, c10::DeviceAllocator, getMemoryInfo);  // torch 2.10

// Pinned memory is ordinary host memory that remembers that it was asked to be pinned.
struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};
PinnedRanges& pinned_ranges() {
  static auto* ranges = new PinnedRanges;  // outlives every tensor
  return *ranges;
}
struct PinnedBlock {
  c10::DataPtr inner;
};
void free_pinned(void* p) {
  auto* block = static_cast<PinnedBlock*>(p);
  {
    auto& all = pinned_ranges();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.ranges.erase(static_cast<const char*>(block->inner.get()));
  }
  delete block;
}

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto inner = c10::GetAllocator(c10::kCPU)->allocate(bytes);
    void* data = inner.get();
    if (data) {
      auto& all = pinned_ranges();
      std::lock_guard<std::mutex> lock(all.mutex);
      all.ranges[static_cast<const char*>(data)] = bytes;
    }
    return {data, new PinnedBlock{std::move(inner)}, &free_pinned, Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

Twin* twin_of(const c10::DataPtr& data) {
  Block* block = block_of(data);
  return block ? &block->twin : nullptr;
}

const c10::DataPtr& unlabelled(const c10::DataPtr& data) {
  const Block* block = block_of(data);
  return block ? block->inner : data;
}

bool make_shareable(StorageImpl& storage) {
  auto& data = storage._mutable_data_ptr_no_checks();
  if (data.get_deleter() == &free_block && data.get()) {
    auto& shared = shared_blocks();
    std::lock_guard<std::mutex> lock(shared.mutex);
    void* address = data.get();
    shared.all[address] = static_cast<Block*>(data.release_context());
    storage.set_data_ptr_noswap(c10::DataPtr(address, address, &free_shared, storage.device()));
  }
  return data.get_deleter() == &free_shared || c10::impl::cow::is_cow_data_ptr(data);
}

size_t free_memory(DeviceIndex device) {
  const Usage& u = usage(device);
  const size_t held = u.bytes, limit = u.limit, total = limit ? limit : config.capacity;
  const size_t ours = total > held ? total - held : 0;
  auto* theirs = statistics_of_backing(device);
  // Other processes have some of an accelerator's memory.
  return theirs ? std::min(ours, free_memory_of(*theirs, device).value_or(ours)) : ours;
}

std::array<int64_t, 13> figures(DeviceIndex device) {
  const Usage& u = usage(device);
  if (auto* theirs = statistics_of_backing(device)) {
    const auto s = theirs->getDeviceStats(device);
    std::array<int64_t, 13> all;
    size_t next = 0;
    for (const auto* each : {&s.allocated_bytes[0], &s.allocation[0], &s.reserved_bytes[0]})
      for (const int64_t figure : {each->current, each->peak, each->allocated, each->freed}) all[next++] = figure;
    all[next] = u.ooms;
    return all;
  }
  return {u.bytes, u.bytes_peak, u.bytes_allocated, u.bytes_freed, u.blocks, u.blocks_peak, u.blocks_allocated,
          u.blocks_freed, u.bytes, u.bytes_peak, u.bytes_allocated, u.bytes_freed, u.ooms};
}

void reset_peak(DeviceIndex device) {
  Usage& u = usage(device);
  if (auto* theirs = statistics_of_backing(device)) theirs->resetPeakStats(device);
  u.bytes_peak = u.bytes.load();
  u.blocks_peak = u.blocks.load();
}

void reset_accumulated(DeviceIndex device) {
  Usage& u = usage(device);
  if (auto* theirs = statistics_of_backing(device)) theirs->resetAccumulatedStats(device);
  u.bytes_allocated = u.bytes_freed = u.blocks_allocated = u.blocks_freed = u.ooms = 0;
}

void raise_if_full(const c10::Error& error, Device device) {
  const std::string_view said = error.what_without_backtrace();
  const std::string_view before = "tried to allocate ";
  if (!backing.is_host()) {
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || said.find("MPS backend out of memory") == 0)
      raise_out_of_memory(asked_for(said), device);
    return;
  }
  if (said.find("DefaultCPUAllocator") == said.npos) return;
  const size_t at = said.find(before);
  raise_out_of_memory(at == said.npos ? 0 : std::strtoull(said.data() + at + before.size(), nullptr, 10), device);
}

c10::DataPtr label(c10::DataPtr&& data, size_t bytes, Device device) {
  Usage& u = usage(device.index());
  const auto n = static_cast<int64_t>(bytes);
  // Taken in one step: threads that allocate at once cannot pass the limit together, and one that is refused takes nothing.
  int64_t held = u.bytes;
  do {
    if (C10_UNLIKELY(passes_limit(u, held, n))) raise_out_of_memory(bytes, device);
  } while (!u.bytes.compare_exchange_weak(held, held + n));
  raise_peak(u.bytes_peak, held + n);
  u.bytes_allocated += n;
  raise_peak(u.blocks_peak, u.blocks += 1);
  u.blocks_allocated++;
  void* address = data.get();
  return {address, new Block(std::move(data), n, device.index()), &free_block, device};
}

c10::Allocator* virtual_allocator() {
  static auto* allocator = new VirtualAllocator;  // outlives every tensor
  return allocator;
}

c10::Allocator* pinned_allocator() {
  if (!backing.is_host()) return backing.hooks().getPinnedMemoryAllocator();
  static auto* allocator = new PinnedAllocator;
  return allocator;
}

bool is_pinned(const void* data) {
  if (!backing.is_host()) return backing.hooks().isPinnedPtr(data);
  auto& all = pinned_ranges();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto* address = static_cast<const char*>(data);
  auto it = all.ranges.upper_bound(address);
  if (it == all.ranges.begin()) return false;
  --it;
  return address < it->first + std::max<size_t>(it->second, 1);
}

void pin(const void* data, size_t bytes) {
  at::globalContext().lazyInitDevice(config.type);  // else torch takes no address for pinned
  auto& all = pinned_ranges();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.ranges[static_cast<const char*>(data)] = bytes;
}

void unpin(const void* data) {
  auto& all = pinned_ranges();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.ranges.erase(static_cast<const char*>(data));
}

void install_allocators() {
  c10::SetAllocator(config.type, virtual_allocator(), 255);
  auto* pinned = backing.is_host() ? static_cast<at::HostAllocator*>(pinned_allocator()) : at::getHostAllocator(backing.type());
  at::setHostAllocator(config.type, pinned, 255);
}

}  // namespace torchdevice
