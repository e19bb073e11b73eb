// Memory of the virtual devices with the virtual device type, with a limit per device; pinned host memory. The bytes
// are pieces of segments (segments.cpp), or come from the allocator of the backing.
#include "device.h"

#include <ATen/Context.h>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>

namespace torchdevice {

Config config;

void refuse_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      dtype != c10::ScalarType::Double,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
      "Please use float32 instead.");
  TORCH_CHECK_TYPE(
      false, "Trying to convert ", dtype, " to the MPS backend but it does not have support for that dtype.");
}

namespace {

std::string gib(size_t bytes) {
  char text[32];
  if (bytes >= (size_t(1) << 30))
    snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else
    snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

[[noreturn]] void raise_out_of_memory(size_t asked, Device device) {
  count_refused(device.index());
  const auto now = figures(device.index());
  const auto held = static_cast<size_t>(now.allocated_bytes[0].current), reserved = static_cast<size_t>(now.reserved_bytes[0].current);
  const size_t limit = memory_limit(device.index()), most = limit ? limit : config.capacity;
  const size_t free = free_memory(device.index());
  note_out_of_memory(static_cast<int64_t>(asked), device.index(), static_cast<int64_t>(most), static_cast<int64_t>(free));
  // CUDA has a separate message for 2^60 bytes or more.
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
      " is free. Of the allocated memory ", gib(held), " is allocated by PyTorch, and ", gib(reserved - std::min(held, reserved)),
      " is reserved by PyTorch but unallocated.");
}

std::atomic<Relief> relief{nullptr};

// Asks Python for memory. A finalizer that runs out of memory meanwhile does not ask again.
int relieve(Device device, size_t asked, int attempt) {
  const Relief ask = relief.load(std::memory_order_relaxed);
  thread_local bool asking = false;
  if (!ask || asking) return kRaise;
  asking = true;
  const int answer = ask(device.index(), static_cast<int64_t>(asked), attempt);
  asking = false;
  return answer;
}

struct alignas(kCacheLine) Block : Twin, Held {  // the twin is in one line of the cache
  bool of_segment = false;
  Piece* piece = nullptr;  // of a segment; also null if a checkpoint removed it
  c10::DataPtr inner;      // memory that is not a piece of a segment
  bool counted = false;    // here, and not by the allocator of the backing
  size_t place = 0;        // in `Blocks::outside`

  // torch.profiler with profile_memory, which does not know the sizes of allocations that were not reported to it.
  void tell_profiler(int64_t change) const {
    if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
    const auto now = figures(device);
    c10::reportMemoryUsageToProfiler(
        const_cast<void*>(address), change, static_cast<size_t>(now.allocated_bytes[0].current),
        static_cast<size_t>(now.reserved_bytes[0].current), Device(config.type, device));
  }
};

// Blocks of freed memory are reused with their twins, so that a new result needs no allocation for them.
struct Blocks {
  static constexpr size_t kMostSpare = 4096;  // bounds the memory that they keep
  std::mutex mutex;
  std::vector<Block*> outside;  // memory that is not a piece of a segment
  std::vector<Block*> spare;

  Block* take(const Held& held, bool of_segment) {
    std::lock_guard<std::mutex> lock(mutex);
    Block* block;
    if (C10_LIKELY(!spare.empty())) {
      block = spare.back();
      spare.pop_back();
    } else {
      block = new Block;
    }
    static_cast<Held&>(*block) = held;
    block->of_segment = of_segment;
    if (!of_segment) {
      block->place = outside.size();
      outside.push_back(block);
    }
    return block;
  }
  void give_back(Block* block) {
    Traceback from;  // freed after the lock, because this frees Python code objects
    std::unique_lock<std::mutex> lock(mutex);
    if (!block->of_segment) {
      Block* last = outside.back();
      outside[last->place = block->place] = last;
      outside.pop_back();
    }
    from = std::move(block->from);
    const bool kept = spare.size() < kMostSpare;
    if (C10_LIKELY(kept)) spare.push_back(block);
    lock.unlock();
    if (C10_UNLIKELY(!kept)) delete block;
  }
};
Blocks& blocks() {
  static auto* all = outlives_forks<Blocks, &blocks>();
  return *all;
}

Block* block_with(Piece* piece, int64_t bytes, DeviceIndex device) {
  Block* block = blocks().take({piece->address, bytes, device}, true);
  own_piece(device, piece, &block->piece);
  block->tell_profiler(bytes);
  return block;
}
Block* block_with(c10::DataPtr&& data, int64_t bytes, DeviceIndex device, bool counted) {
  Block* block = blocks().take({data.get(), bytes, device, current_stream(device).id(), traceback_of_allocation()}, false);
  block->inner = std::move(data);
  block->counted = counted;
  note_allocation(*block);
  block->tell_profiler(bytes);
  return block;
}
c10::DataPtr owning(Block* block, void* address, Device labelled) {
  return {address, static_cast<Twin*>(block), &free_block, labelled};
}
Block* owner(void* twin) { return static_cast<Block*>(static_cast<Twin*>(twin)); }

// Blocks whose memory tensors share until the first write. torch requires such memory to be its own context.
struct SharedBlocks {
  std::mutex mutex;
  std::unordered_map<const void*, Block*> all;  // by address
};
SharedBlocks& shared_blocks() {
  static auto* blocks = outlives_forks<SharedBlocks, &shared_blocks>();
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
  free_block(static_cast<Twin*>(block));
}

Block* block_of(const c10::DataPtr& data) {  // null: memory that was not allocated for a virtual device
  if (C10_LIKELY(data.get_deleter() == &free_block)) return owner(data.get_context());
  if (data.get_deleter() != &free_shared) return nullptr;
  auto& shared = shared_blocks();
  std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.all.at(data.get());
}

Piece* piece_of(size_t bytes, Device device) {  // null: the device is full
  Happened happened;
  Piece* piece = take_piece(device.index(), bytes, happened);
  note_happened(device.index(), happened, kAllocationContext);
  return piece;
}

// `for_kernel`: the memory is for a kernel of the CPU, which can use memory of the host as well. In that case the
// result may be null.
c10::DataPtr from_segments(size_t bytes, Device device, Device labelled, bool for_kernel = false) {
  if (!bytes) return {nullptr, labelled};
  Piece* piece = piece_of(bytes, device);
  if (C10_UNLIKELY(!piece) && relieve(device, bytes, 0) == kTryAgain) piece = piece_of(bytes, device);
  if (C10_UNLIKELY(!piece)) {
    if (for_kernel && relieve(device, bytes, 1) == kUseHost) return {nullptr, labelled};
    raise_out_of_memory(bytes, device);
  }
  void* address = piece->address;
  return owning(block_with(piece, static_cast<int64_t>(bytes), device.index()), address, labelled);
}

constinit thread_local DeviceIndex allocating_for = -1;
c10::Allocator* allocator_of_host = nullptr;

// Memory of a virtual device that was allocated as CPU memory, until it is relabelled or freed. Its context is its
// address, because some kernels free memory by its address only.
struct Lent {
  static constexpr size_t kFew = 16;
  std::mutex mutex;
  std::vector<Block*> few;                       // most kernels have only these, which need no table
  std::unordered_map<const void*, Block*> many;  // by address
  std::atomic<size_t> count{0};                  // so that the host's own memory is freed without a lookup

  void add(Block* block) {
    std::lock_guard<std::mutex> lock(mutex);
    if (few.size() < kFew) few.push_back(block);
    else many[block->address] = block;
    count.fetch_add(1, std::memory_order_relaxed);
  }
  Block* remove(const void* address) {  // null: not found
    if (C10_LIKELY(count.load(std::memory_order_relaxed) == 0)) return nullptr;
    std::lock_guard<std::mutex> lock(mutex);
    Block* block = nullptr;
    const auto is_it = [&](const Block* each) { return each->address == address; };
    if (const auto found = std::find_if(few.begin(), few.end(), is_it); found != few.end()) {
      block = *found;
      *found = few.back();
      few.pop_back();
    } else if (const auto listed = many.find(address); listed != many.end()) {
      block = listed->second;
      many.erase(listed);
    }
    if (block) count.fetch_sub(1, std::memory_order_relaxed);
    return block;
  }
};
Lent& lent() {
  static auto* blocks = outlives_forks<Lent, &lent>();
  return *blocks;
}
void free_on_host(void* address) {
  if (Block* block = lent().remove(address)) free_block(static_cast<Twin*>(block));
  else allocator_of_host->raw_deleter()(address);
}

// A scalar that a kernel of the CPU converts to another dtype: GPU kernels need no memory for this. A result of that
// size is moved when it is relabelled.
constexpr size_t kNumber = 16;

// The allocator of the CPU. While kernels compute for a virtual device, their allocations are memory of that device.
struct LendingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (C10_LIKELY(allocating_for < 0) || bytes <= kNumber) return on_host(bytes);
    auto data = from_segments(bytes, Device(config.type, allocating_for), Device(c10::kCPU), true);
    // Memory of the host that becomes a result is counted, and refused if it does not fit, when it is relabelled.
    if (C10_UNLIKELY(!data.get())) return on_host(bytes);
    Block* block = owner(data.release_context());
    lent().add(block);
    return {data.get(), data.get(), &free_on_host, Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_on_host; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static c10::DataPtr on_host(size_t bytes) {
    auto data = allocator_of_host->allocate(bytes);
    (void)data.compare_exchange_deleter(allocator_of_host->raw_deleter(), &free_on_host);
    return data;
  }
};

// The allocator with the statistics of the backing's device; null if several virtual devices share it.
c10::DeviceAllocator* statistics_of_backing(DeviceIndex device) {
  return backing.counts(device) ? backing.device_allocator() : nullptr;
}

// The memory that counts against a limit. Memory that an accelerator's allocator only caches does not count.
size_t limited_memory(DeviceIndex device) {
  const auto now = figures(device);
  return static_cast<size_t>((backing.is_host() ? now.reserved_bytes : now.allocated_bytes)[0].current);
}

// torch 2.10 calls it on allocators; some do not implement it.
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

bool is_out_of_memory(const c10::Error& error) {  // of the backing; false for an error of raise_out_of_memory
  const std::string_view said = error.what_without_backtrace();
  if (backing.is_host()) return said.find("DefaultCPUAllocator") != said.npos;
  if (said.find(c10::DeviceTypeName(config.type)) == 0) return false;
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) || said.find("MPS backend out of memory") == 0;
}

// "Tried to allocate 20.00 MiB", as in the message of an accelerator.
size_t asked_for(std::string_view said) {
  const std::string_view before = "Tried to allocate ";
  const size_t at = said.find(before);
  if (at == said.npos) return 0;
  char* unit;
  const double number = std::strtod(said.data() + at + before.size(), &unit);
  const double factor = unit[1] == 'G' ? double(1 << 30) : unit[1] == 'M' ? double(1 << 20) : unit[1] == 'K' ? 1024.0 : 1.0;
  return static_cast<size_t>(number * factor);
}

// Bytes that threads have requested from the backing and that its statistics may not contain yet, per device. Without
// them two threads could pass the check of a limit together. No lock is held during the request, because the backing
// may call Python.
std::array<std::atomic<size_t>, kMaxDevices> requested{};

class Request {
 public:
  Request(DeviceIndex device, size_t bytes) : of_device_(requested[static_cast<size_t>(device)]), bytes_(bytes) {
    others_ = of_device_.fetch_add(bytes);
  }
  ~Request() { of_device_.fetch_sub(bytes_); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  size_t others() const { return others_; }

 private:
  std::atomic<size_t>& of_device_;
  const size_t bytes_;
  size_t others_;
};

struct VirtualAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const Device device(config.type, current_device());
    if (keeps_segments()) return from_segments(bytes, device, device);
    if (auto data = try_backing(bytes, device)) return std::move(*data);
    if (relieve(device, bytes, 0) == kTryAgain)
      if (auto data = try_backing(bytes, device)) return std::move(*data);
    raise_out_of_memory(bytes, device);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (backing.is_host()) return default_copy_data(to, from, bytes);
    backing.copy_bytes(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool) override {
    if (!backing.is_host()) return backing.empty_cache(pool);
    for (DeviceIndex i = 0; i < config.count; i++) {
      Happened happened;
      empty_segments(i, pool, happened);
      note_happened(i, happened, kEveryContext);
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { use_on(data, stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return figures(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { reset_accumulated(device); }
  void resetPeakStats(DeviceIndex device) override { reset_peak(device); }
  virtual std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) {
    const size_t limit = memory_limit(device);
    return {free_memory(device), limit ? limit : config.capacity};
  }

 private:
  // Null if the memory is beyond the limit or the backing is full.
  static std::optional<c10::DataPtr> try_backing(size_t bytes, Device device) {
    TORCH_CHECK(
        !lost_by_fork(), "Cannot re-initialize ", c10::DeviceTypeName(config.type), " in forked subprocess. To use ",
        c10::DeviceTypeName(config.type), " with multiprocessing, you must use the 'spawn' start method");
    c10::OptionalDeviceGuard guard;
    if (!backing.is_host()) guard.reset_device(backing.device(device.index()));
    c10::DataPtr data;
    try {
      for (bool done = false; !done; std::this_thread::yield()) {
        const Request request(device.index(), bytes);
        const size_t limit = memory_limit(device.index());
        done = !limit || limited_memory(device.index()) + request.others() + bytes <= limit;
        if (done) data = backing.allocator()->allocate(bytes);
        else if (request.others() == 0) return std::nullopt;  // else the statistics may contain the others by now
      }
    } catch (const c10::Error& e) {
      if (is_out_of_memory(e)) return std::nullopt;
      throw;
    }
    return label(std::move(data), bytes, device);
  }
};

TORCHDEVICE_OVERRIDES_IF_THERE(VirtualAllocator, c10::DeviceAllocator, getMemoryInfo);  // torch 2.10

// Pinned memory is ordinary host memory that is marked as pinned.
struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};
PinnedRanges& pinned_ranges() {
  static auto* ranges = outlives_forks<PinnedRanges, &pinned_ranges>();
  return *ranges;
}
struct PinnedBlock {
  c10::DataPtr inner;
  size_t size;           // of the memory
  double free_at = 0.0;  // when the last stream that uses it is done
};
// Freed blocks for the next request, as in torch's allocator.
struct PinnedCache {
  std::mutex mutex;
  std::multimap<size_t, PinnedBlock*> free;
};
PinnedCache& pinned_cache() {
  static auto* cache = outlives_forks<PinnedCache, &pinned_cache>();
  return *cache;
}
void free_pinned(void* p) {
  auto* block = static_cast<PinnedBlock*>(p);
  unpin(block->inner.get());
  auto& cache = pinned_cache();
  std::lock_guard<std::mutex> lock(cache.mutex);
  cache.free.emplace(block->size, block);
}

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, Device(c10::kCPU)};
    PinnedBlock* block = take(std::bit_ceil(bytes));
    void* data = block->inner.get();
    auto& all = pinned_ranges();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.ranges[static_cast<const char*>(data)] = bytes;
    return {data, block, &free_pinned, Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void*, void* block, c10::Stream stream) override {
    auto& known = static_cast<PinnedBlock*>(block)->free_at;
    known = std::max(known, busy_until(stream));
    return true;
  }
  void empty_cache() override {
    auto& cache = pinned_cache();
    std::lock_guard<std::mutex> lock(cache.mutex);
    for (auto& each : cache.free) delete each.second;
    cache.free.clear();
  }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static PinnedBlock* take(size_t size) {
    auto& cache = pinned_cache();
    {
      std::lock_guard<std::mutex> lock(cache.mutex);
      const auto [first, last] = cache.free.equal_range(size);
      for (auto each = first; each != last; ++each)
        if (each->second->free_at <= milliseconds()) {
          PinnedBlock* found = each->second;
          cache.free.erase(each);
          return found;
        }
    }
    Allocating none(std::nullopt);  // it is host memory
    return new PinnedBlock{c10::GetAllocator(c10::kCPU)->allocate(size), size};
  }
};

}  // namespace

void free_block(void* twin) {
  Block* block = owner(twin);
  retire(*block);
  const c10::DataPtr inner = std::move(block->inner);  // freed when the block is returned
  if (block->of_segment) {
    Happened happened;
    give_back_piece(block->device, block->piece, happened);
    note_happened(block->device, happened, kEveryContext);
  } else {
    if (block->counted) uncount_foreign(block->device, block->bytes);
    note_free(*block);
  }
  block->tell_profiler(-block->bytes);
  blocks().give_back(block);
}

Twin* twin_of_shared(const c10::DataPtr& data) { return block_of(data); }

std::vector<Held> held_outside_segments() {
  auto& all = blocks();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<Held> held;
  for (const Block* each : all.outside) held.push_back(*each);
  return held;
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
    shared.all[address] = owner(data.release_context());
    storage.set_data_ptr_noswap(c10::DataPtr(address, address, &free_shared, storage.device()));
  }
  return data.get_deleter() == &free_shared || c10::impl::cow::is_cow_data_ptr(data);
}

bool is_of_pool(const c10::DataPtr& data, const c10::MempoolId_t& pool) {
  const Block* block = block_of(data);
  return block && block->of_segment && is_in_pool(block->device, block->piece, pool);
}

void use_on(const c10::DataPtr& data, const c10::Stream& stream) {
  if (!backing.is_host()) return backing.guard().recordDataPtrOnStream(unlabelled(data), backing.stream(stream));
  const Block* block = block_of(data);
  if (block && block->of_segment) use_piece_on(block->device, block->piece, stream);
}

void Allocating::enter(const std::optional<Device>& device) {
  if (allocator_of_host) before_ = std::exchange(allocating_for, device ? device->index() : DeviceIndex(-1));
}
void Allocating::leave() {
  if (allocator_of_host) allocating_for = before_;
}

void set_relief(Relief function) { relief = function; }

c10::Allocator* host_allocator() { return allocator_of_host; }

c10::DataPtr own_memory_at(DeviceIndex device, void* address) {
  Piece* piece = piece_at(device, address);
  TORCH_CHECK(piece, "no memory without an owner begins at ", address);
  const auto bytes = static_cast<int64_t>(piece->requested);
  return owning(block_with(piece, bytes, device), address, Device(config.type, device));
}

void disown_memory(const c10::DataPtr& data) {
  Block* block = block_of(data);
  if (block && block->of_segment) disown_piece(block->device, block->piece);
}

size_t free_memory(DeviceIndex device) {
  const size_t held = limited_memory(device);
  const size_t most = usable_memory(device), ours = most > held ? most - held : 0;
  auto* theirs = backing.is_host() ? nullptr : backing.device_allocator();
  // Other processes and other virtual devices use a part of the accelerator's memory.
  return theirs ? std::min(ours, free_memory_of(*theirs, backing.device(device).index()).value_or(ours)) : ours;
}

c10::CachingDeviceAllocator::DeviceStats figures(DeviceIndex device) {
  auto ours = statistics(device);
  auto* theirs = statistics_of_backing(device);
  if (!theirs) return ours;
  auto stats = theirs->getDeviceStats(device);
  stats.num_ooms = ours.num_ooms;  // those of the backing and those of the limit
  return stats;
}

void reset_peak(DeviceIndex device) {
  reset_peak_statistics(device);  // raises for an index that does not exist
  if (auto* theirs = statistics_of_backing(device)) theirs->resetPeakStats(device);
}

void reset_accumulated(DeviceIndex device) {
  reset_accumulated_statistics(device);
  if (auto* theirs = statistics_of_backing(device)) theirs->resetAccumulatedStats(device);
}

void raise_if_full(const c10::Error& error, Device device) {
  if (!is_out_of_memory(error)) return;
  const std::string_view said = error.what_without_backtrace();
  const std::string_view before = "tried to allocate ";
  if (!backing.is_host()) raise_out_of_memory(asked_for(said), device);
  const size_t at = said.find(before);
  raise_out_of_memory(at == said.npos ? 0 : std::strtoull(said.data() + at + before.size(), nullptr, 10), device);
}

c10::DataPtr label(c10::DataPtr&& data, size_t bytes, Device device) {
  if (!data.get() && keeps_segments()) return {nullptr, device};
  if (data.get_deleter() == &free_on_host) {
    if (Block* block = lent().remove(data.get())) return owning(block, data.release_context(), device);
    if (bytes <= kNumber) {
      auto moved = from_segments(bytes, device, device);
      if (moved.get()) std::memcpy(moved.get(), data.get(), bytes);
      return moved;
    }
  }
  const auto n = static_cast<int64_t>(bytes);
  const size_t limit = memory_limit(device.index());
  const bool counted_there = backing.counts(device.index());
  const auto fits = [&] {
    return counted_there ? !limit || limited_memory(device.index()) <= limit : count_foreign(device.index(), n);
  };
  if (C10_UNLIKELY(!fits()) && !(relieve(device, bytes, 0) == kTryAgain && fits())) raise_out_of_memory(bytes, device);
  void* address = data.get();
  return owning(block_with(std::move(data), n, device.index(), !counted_there), address, device);
}

c10::Allocator* virtual_allocator() {
  static auto* allocator = new VirtualAllocator;  // never destroyed: it outlives every tensor
  return allocator;
}

c10::Allocator* pinned_allocator() {
  if (!backing.is_host()) return backing.hooks().getPinnedMemoryAllocator();
  static auto* allocator = new PinnedAllocator;
  return allocator;
}

void use_pinned_on(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() == &free_pinned)
    static_cast<PinnedAllocator*>(pinned_allocator())->record_event(nullptr, data.get_context(), stream);
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
  at::globalContext().lazyInitDevice(config.type);  // otherwise torch does not treat any address as pinned
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
  if (keeps_segments()) {
    static auto* lending = new LendingAllocator;  // never destroyed: it outlives every tensor
    allocator_of_host = c10::GetAllocator(c10::kCPU);
    c10::SetAllocator(c10::kCPU, lending, 255);
  }
  c10::SetAllocator(config.type, virtual_allocator(), 255);
  auto* pinned = backing.is_host() ? static_cast<at::HostAllocator*>(pinned_allocator()) : at::getHostAllocator(backing.type());
  at::setHostAllocator(config.type, pinned, 255);
}

}  // namespace torchdevice
