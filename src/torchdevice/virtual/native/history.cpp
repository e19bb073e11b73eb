// The history of allocations, for torch.cuda.memory._record_memory_history and its snapshots: the memory that is held
// now with its tracebacks, and earlier allocations and frees. Also the observers of out-of-memory errors.
#include "device.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <sstream>
#include <unordered_map>

namespace torchdevice {

namespace {

struct Entry {
  const char* action;  // in the wording of torch's own allocator
  const void* address;
  int64_t bytes;
  DeviceIndex device;
  c10::StreamId stream;
  int64_t at;  // microseconds since the epoch
  Traceback from;
};
struct History {
  std::mutex mutex;
  std::deque<Entry> entries;
  size_t most = 0;  // the maximal number of entries
  std::atomic<int> context{kNoContext};
  std::atomic<bool> traced{false}, with_cpp{false};
  std::vector<OutOfMemoryObserver> observers;
};
History& history() {
  static auto* h = outlives_forks<History, &history>();
  return *h;
}

Traceback traceback(int needed) {
  const auto& h = history();
  // It acquires the lock of the interpreter, so no lock of this library may be held.
  return h.context >= needed ? torch::CapturedTraceback::gather(true, true, h.with_cpp) : nullptr;
}

int64_t microseconds() {
  using namespace std::chrono;
  return duration_cast<std::chrono::microseconds>(system_clock::now().time_since_epoch()).count();
}

void note(const char* action, const Held& held, const Traceback& from) {
  history().entries.push_back({action, held.address, held.bytes, held.device, held.stream, microseconds(), from});
}

void forget_oldest(std::deque<Entry>& forgotten) {
  auto& h = history();
  for (; h.entries.size() > h.most; h.entries.pop_front()) forgotten.push_back(std::move(h.entries.front()));
}

std::string on_one_line(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

void note_allocation(const Held& held) {
  auto& h = history();
  if (C10_LIKELY(!h.traced)) return;
  std::deque<Entry> forgotten;  // freed after the lock, because this frees Python code objects
  std::lock_guard<std::mutex> lock(h.mutex);
  const Traceback from = h.context >= kAllocationContext ? held.from : nullptr;
  note("segment_alloc", held, from);
  note("alloc", held, from);
  forget_oldest(forgotten);
}

Traceback traceback_of_allocation() {
  return C10_UNLIKELY(history().context != kNoContext) ? traceback(kLiveContext) : nullptr;
}

void note_happened(DeviceIndex device, const Happened& happened, int context) {
  auto& h = history();
  if (C10_LIKELY(!h.traced) || happened.empty()) return;
  const Traceback from = traceback(context);
  std::deque<Entry> forgotten;
  std::lock_guard<std::mutex> lock(h.mutex);
  for (const Happening& each : happened)
    note(each.action, Held{each.address, static_cast<int64_t>(each.bytes), device, each.stream}, from);
  forget_oldest(forgotten);
}

void note_free(const Held& held) {
  auto& h = history();
  if (C10_LIKELY(!h.traced)) return;
  const Traceback from = traceback(kEveryContext);
  std::deque<Entry> forgotten;
  std::lock_guard<std::mutex> lock(h.mutex);
  for (const char* action : {"free_requested", "free_completed", "segment_free"}) note(action, held, from);
  forget_oldest(forgotten);
}

void note_out_of_memory(int64_t asked, DeviceIndex device, int64_t total, int64_t free) {
  auto& h = history();
  Traceback from = h.traced ? traceback(kAllocationContext) : nullptr;
  std::vector<OutOfMemoryObserver> observers;
  std::deque<Entry> forgotten;
  {
    std::lock_guard<std::mutex> lock(h.mutex);
    observers = h.observers;
    if (h.traced) {
      note("oom", Held{reinterpret_cast<const void*>(free), asked, device}, from);
      forget_oldest(forgotten);
    }
  }
  for (const auto observer : observers) observer(device, asked, total, free);
}

void observe_out_of_memory(OutOfMemoryObserver observer) {
  auto& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  h.observers.push_back(observer);
}

void record_history(bool traced, int context, bool with_cpp, size_t most, bool clear) {
  auto& h = history();
  std::deque<Entry> forgotten;
  std::lock_guard<std::mutex> lock(h.mutex);
  h.traced = traced;
  h.context = context;
  h.with_cpp = with_cpp;
  h.most = most;
  if (clear || !traced) forgotten.swap(h.entries);  // as in torch: a disabled history is empty
}

// Lines with fields separated by tabs: F file line name; S the numbers of its frames; G a segment, and P each of its
// pieces; T an event. Memory that is not a piece of a segment is written as a segment with one piece.
std::string dump_history() {
  auto& h = history();
  const std::vector<Held> held = held_outside_segments();
  std::deque<Entry> entries;
  {
    std::lock_guard<std::mutex> lock(h.mutex);
    entries = h.entries;
  }
  std::vector<torch::CapturedTraceback*> all;
  std::unordered_map<const torch::CapturedTraceback*, size_t> numbers;
  const auto number = [&](const Traceback& from) -> int64_t {
    if (!from) return -1;
    const auto [found, fresh] = numbers.emplace(from.get(), all.size());
    if (fresh) all.push_back(from.get());
    return static_cast<int64_t>(found->second);
  };
  std::ostringstream told;
  const auto tell = [&](int device, const SegmentView& segment) {
    told << "G\t" << device << '\t' << reinterpret_cast<uintptr_t>(segment.address) << '\t' << segment.size << '\t'
         << segment.stream << '\t' << segment.pool.first << '\t' << segment.pool.second << '\t' << segment.large << '\t'
         << number(segment.from) << '\n';
    for (const PieceView& piece : segment.pieces)
      told << "P\t" << reinterpret_cast<uintptr_t>(piece.address) << '\t' << piece.size << '\t' << piece.requested << '\t'
           << int(piece.state) << '\t' << number(piece.from) << '\n';
  };
  std::vector<std::vector<SegmentView>> views;  // they keep their tracebacks until these are read below
  for (int i = 0; i < config.count; i++) {
    views.push_back(view_segments(static_cast<DeviceIndex>(i)));
    for (const SegmentView& segment : views.back()) tell(i, segment);
  }
  for (const Held& one : held) {
    const auto bytes = static_cast<size_t>(one.bytes);
    const auto* address = static_cast<const char*>(one.address);
    tell(one.device,
         {address, bytes, one.stream, {0, 0}, bytes > (1 << 20), one.from, {{address, bytes, bytes, Piece::kAllocated, one.from}}});
  }
  for (const Entry& one : entries)
    told << "T\t" << int(one.device) << '\t' << one.action << '\t' << reinterpret_cast<uintptr_t>(one.address) << '\t'
         << one.bytes << '\t' << one.stream << '\t' << one.at << '\t' << number(one.from) << '\n';
  std::ostringstream named;
  if (!all.empty()) {
    const auto symbols = torch::symbolize(all);
    for (const auto& frame : symbols.all_frames)
      named << "F\t" << on_one_line(frame.filename) << '\t' << frame.lineno << '\t' << on_one_line(frame.funcname) << '\n';
    for (const auto& one : symbols.tracebacks) {
      named << 'S';
      for (const auto frame : one) named << '\t' << frame;
      named << '\n';
    }
  }
  return named.str() + told.str();
}

}  // namespace torchdevice
