// Counts the memory of CPU tensors as it is allocated and freed, and refuses what is beyond a limit. The CPU's allocator
// has neither statistics nor a limit. This allocator wraps it from the first query about memory, or from the first limit
// on. Memory that was allocated before is added: the caller passes its storages.
#include "calls.h"
#include "forks.h"

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>

namespace torchdevice {

namespace {

c10::Allocator* inner = nullptr;
std::atomic<int64_t> held{0}, highest{0}, refused{0};
std::atomic<int64_t> limit{-1};  // -1: none
std::atomic<const char*> device_name{nullptr};  // in the message: CUDA, or CPU
thread_local int64_t allocated_here = 0;

// What Python answers when the limit is reached: whether it has freed memory, so that the request may fit now.
using Relief = int (*)(int64_t asked);
std::atomic<Relief> relief{nullptr};

// Sizes by address, in shards that threads rarely share. A size stored next to the memory would change the figures of
// profilers.
struct Sizes {
  struct Part {
    std::mutex mutex;
    std::unordered_map<const void*, size_t> sizes;
  };
  struct Every {  // locked during a fork
    std::array<Part, 64>& parts;
    void lock() { for (Part& part : parts) part.mutex.lock(); }
    void unlock() { for (Part& part : parts) part.mutex.unlock(); }
  };
  std::array<Part, 64> parts;
  Every mutex{parts};
  Part& of(const void* address) { return parts[(reinterpret_cast<uintptr_t>(address) >> 6) % parts.size()]; }
};
Sizes& sizes() {
  static auto* all = outlives_forks<Sizes, &sizes>();
  return *all;
}

void count(int64_t bytes) {
  const int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = highest.load(std::memory_order_relaxed);
  while (now > most && !highest.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void add(const void* address, size_t bytes) {
  auto& part = sizes().of(address);
  {
    std::lock_guard<std::mutex> lock(part.mutex);
    part.sizes[address] = bytes;
  }
  count(static_cast<int64_t>(bytes));
}

void free_counted(void* address) {
  auto& part = sizes().of(address);
  {
    std::lock_guard<std::mutex> lock(part.mutex);
    const auto found = part.sizes.find(address);
    if (found != part.sizes.end()) {
      held.fetch_sub(static_cast<int64_t>(found->second), std::memory_order_relaxed);
      part.sizes.erase(found);
    }
  }
  inner->raw_deleter()(address);
}

bool fits(size_t bytes) {
  const int64_t most = limit.load(std::memory_order_relaxed);
  return most < 0 || held.load(std::memory_order_relaxed) + static_cast<int64_t>(bytes) <= most;
}

// A finalizer that runs out of memory while Python frees memory does not ask again.
bool relieve(size_t bytes) {
  const Relief ask = relief.load(std::memory_order_relaxed);
  thread_local bool asking = false;
  if (!ask || asking) return false;
  asking = true;
  const bool freed = ask(static_cast<int64_t>(bytes));
  asking = false;
  return freed;
}

std::string readable(int64_t bytes) {
  char text[32];
  const bool large = bytes >= (int64_t(1) << 30);
  snprintf(text, sizeof text, "%.2f %s", static_cast<double>(bytes) / (1 << (large ? 30 : 20)), large ? "GiB" : "MiB");
  return text;
}

// The words of CUDA's message.
void raise_out_of_memory(size_t bytes) {
  refused++;
  const int64_t most = limit, now = held;
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, device_name.load(), " out of memory. Tried to allocate ",
      readable(static_cast<int64_t>(bytes)), ". The program has limited its tensors on this machine's cpu to ",
      readable(most), ", of which ", readable(std::max<int64_t>(0, most - now)), " is free.");
}

struct Counting final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (C10_UNLIKELY(!fits(bytes)) && !(relieve(bytes) && fits(bytes))) raise_out_of_memory(bytes);
    c10::DataPtr data = inner->allocate(bytes);
    void* address = data.get();
    if (address && data.compare_exchange_deleter(inner->raw_deleter(), &free_counted)) add(address, bytes);
    allocated_here += static_cast<int64_t>(bytes);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner->copy_data(to, from, bytes); }
};

}  // namespace

}  // namespace torchdevice

using namespace torchdevice;

API const char* tdc_error() { return error.c_str(); }

API int tdc_begin() {
  return guarded([] {
    auto* there = c10::GetAllocator(c10::kCPU);
    TORCH_CHECK(!inner && there->raw_deleter(), "the CPU's allocator cannot be counted");
    inner = there;
    static auto* counting = new Counting;  // never destroyed: it outlives every tensor
    c10::SetAllocator(c10::kCPU, counting, 255);
  });
}

// A storage that is older than the count. Memory of other allocators is not counted.
API void tdc_adopt(c10::StorageImpl* storage) {
  auto& data = storage->_mutable_data_ptr_no_checks();
  void* address = data.get();
  if (address && data.get_context() == address && data.compare_exchange_deleter(inner->raw_deleter(), &free_counted))
    add(address, storage->nbytes());
}

API int64_t tdc_held() { return held; }
API int64_t tdc_allocated_here() { return allocated_here; }  // by the calling thread; memory that was freed included
API int64_t tdc_highest() { return highest; }
API int64_t tdc_refused() { return refused; }
// `name`: the device in the message, a constant string that is never freed. -1: no limit.
API void tdc_set_limit(int64_t bytes, const char* name) {
  device_name = name;
  limit = bytes;
}
API void tdc_set_relief(Relief function) { relief = function; }
API void tdc_reset_highest() { highest = held.load(); }
