// Memory of a virtual CUDA or XPU device on the CPU, managed as in torch's allocators for GPUs: allocated from the host
// in segments, divided into pieces, and cached when a piece is freed. Statistics, snapshots, the pools of graphs and
// reused addresses are therefore those that a program sees on a GPU.
#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#if defined(__SANITIZE_ADDRESS__)  // `make sanitize` detects uses of freed memory although the segment is cached
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace torchdevice {

namespace {

using Statistics = c10::CachingDeviceAllocator::DeviceStats;

// the constants of torch
constexpr size_t kSmallest = 512;           // sizes and addresses are multiples of it
constexpr size_t kSmallMost = 1 << 20;      // larger pieces use another kind of segment
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kSharedMost = 10 << 20;    // larger pieces have their own segment
constexpr size_t kLargeMultiple = 2 << 20;
constexpr size_t kKinds[] = {0, 1, 2};      // of statistics: all, small, large
// The memory that the driver of a GPU reserves.
constexpr size_t kContext = 256 << 20;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
size_t segment_for(size_t bytes, size_t limit) {
  if (limit && limit < kLargeSegment) return bytes;  // no GPU has so little memory: rounding has no effect
  return bytes <= kSmallMost ? kSmallSegment : bytes < kSharedMost ? kLargeSegment : rounded(bytes, kLargeMultiple);
}

struct ByFit {
  bool operator()(const Piece* a, const Piece* b) const {
    return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
  }
};

}  // namespace

struct Segment {
  c10::DataPtr memory;
  size_t size;
  c10::StreamId stream;
  SegmentPool* pool;
  bool large;
  Traceback from;
  Piece* first = nullptr;
};

// Free pieces by size. Its nodes are kept for the next one, because a new node needs an allocation.
class FreePieces {
 public:
  using Set = std::set<Piece*, ByFit>;
  Set::const_iterator begin() const { return pieces_.begin(); }
  Set::const_iterator end() const { return pieces_.end(); }
  Set::const_iterator smallest_for(size_t size, c10::StreamId stream) const {
    Piece wanted{nullptr, size, stream};
    return pieces_.lower_bound(&wanted);
  }
  void add(Piece* piece) {
    if (spare_.empty()) {
      pieces_.insert(piece);
      return;
    }
    spare_.back().value() = piece;
    pieces_.insert(std::move(spare_.back()));
    spare_.pop_back();
  }
  void remove(Piece* piece) { keep(pieces_.extract(piece)); }
  void remove(Set::const_iterator at) { keep(pieces_.extract(at)); }

 private:
  static constexpr size_t kMostSpare = 64;
  void keep(Set::node_type node) {
    if (!node.empty() && spare_.size() < kMostSpare) spare_.push_back(std::move(node));
  }
  Set pieces_;
  std::vector<Set::node_type> spare_;
};

struct SegmentPool {
  c10::MempoolId_t id;
  int users = 0;  // the number of graphs and pools that keep it; the general pool needs none
  FreePieces free[2]{};  // small and large pieces
};

namespace {

struct Route {  // allocations of a stream or a thread that use a pool
  c10::MempoolId_t pool;
  std::optional<c10::StreamId> stream;
  std::thread::id thread;
};

struct Memory {  // of one device
  std::mutex mutex;
  Statistics statistics;
  std::atomic<size_t> limit{0};
  std::map<c10::MempoolId_t, SegmentPool> pools;
  std::map<const char*, Segment> segments;  // by address
  std::vector<Piece*> waiting;              // freed, but still used by a stream
  std::vector<Route> routes;
};

Memory* all_memory() {
  static Memory* all = [] {
    // A child that was forked while another thread allocated would wait for that thread, which does not exist in the
    // child.
    pthread_atfork(
        [] { for (int i = 0; i < kMaxDevices; i++) all_memory()[i].mutex.lock(); },
        [] { for (int i = 0; i < kMaxDevices; i++) all_memory()[i].mutex.unlock(); },
        [] { for (int i = 0; i < kMaxDevices; i++) all_memory()[i].mutex.unlock(); });
    return new Memory[kMaxDevices];  // never destroyed: it outlives every tensor
  }();
  return all;
}

Memory& memory(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < config.count, "invalid device ordinal ", static_cast<int>(device));
  return all_memory()[device];
}

// Inlined, because each allocation calls it seven times.
template <class Array>
C10_ALWAYS_INLINE void add(Array& statistic, bool large, int64_t amount) {
  for (const size_t kind : {kKinds[0], kKinds[large ? 2 : 1]}) {
    if (amount >= 0) statistic[kind].increase(static_cast<size_t>(amount));
    else statistic[kind].decrease(static_cast<size_t>(-amount));
  }
}

size_t most_of(const Memory& m) {
  if (m.limit) return m.limit;
  return config.type == DeviceType::CUDA && config.capacity > 2 * kContext ? config.capacity - kContext : config.capacity;
}

size_t reserved_of(const Memory& m) { return static_cast<size_t>(m.statistics.reserved_bytes[0].current); }

SegmentPool& general(Memory& m) { return m.pools.try_emplace({0, 0}, SegmentPool{{0, 0}}).first->second; }

bool is_general(const SegmentPool& pool) { return pool.id == c10::MempoolId_t{0, 0}; }
bool is_split(const Piece& piece) { return piece.previous || piece.next; }

// Merges `other` into `piece` if it is a free neighbour. Returns the number of bytes.
size_t merge(Piece& piece, Piece* other) {
  if (!other || other->state != Piece::kFree) return 0;
  piece.segment->pool->free[piece.segment->large].remove(other);
  if (other == piece.previous) {
    piece.address = other->address;
    piece.previous = other->previous;
    (piece.previous ? piece.previous->next : piece.segment->first) = &piece;
  } else {
    piece.next = other->next;
    if (piece.next) piece.next->previous = &piece;
  }
  const size_t bytes = other->size;
  piece.size += bytes;
  delete other;
  return bytes;
}

void make_free(Memory& m, Piece* piece) {
  const bool large = piece->segment->large;
  const auto size = static_cast<int64_t>(piece->size);
  int64_t blocks = 0, bytes = 0;
  for (const bool before : {true, false})
    if (const size_t merged = merge(*piece, before ? piece->previous : piece->next)) {
      blocks--;
      bytes -= static_cast<int64_t>(merged);
    }
  ASAN_POISON_MEMORY_REGION(piece->address, piece->size);
  piece->state = Piece::kFree;
  piece->requested = 0;
  piece->owner = nullptr;
  piece->from.reset();
  piece->used_on.clear();
  piece->segment->pool->free[large].add(piece);
  if (is_split(*piece)) {
    blocks++;
    bytes += static_cast<int64_t>(piece->size);
  }
  add(m.statistics.inactive_split, large, blocks);
  add(m.statistics.inactive_split_bytes, large, bytes);
  add(m.statistics.active, large, -1);
  add(m.statistics.active_bytes, large, -size);
}

void free_waiting(Memory& m, Happened& happened) {
  if (C10_LIKELY(m.waiting.empty())) return;
  const double now = milliseconds();
  for (size_t i = 0; i < m.waiting.size();) {
    Piece* piece = m.waiting[i];
    if (piece->free_at > now) {
      i++;
      continue;
    }
    m.waiting.erase(m.waiting.begin() + static_cast<long>(i));
    happened.push_back({"free_completed", piece->address, piece->requested, piece->stream});
    make_free(m, piece);
  }
}

void release(Memory& m, Piece* piece, Happened& happened) {
  Segment& segment = *piece->segment;
  segment.pool->free[segment.large].remove(piece);
  add(m.statistics.segment, segment.large, -1);
  add(m.statistics.reserved_bytes, segment.large, -static_cast<int64_t>(segment.size));
  m.statistics.num_device_free++;
  happened.push_back({"segment_free", piece->address, segment.size, segment.stream});
  const char* address = piece->address;
  ASAN_UNPOISON_MEMORY_REGION(address, segment.size);
  delete piece;
  m.segments.erase(address);
}

// Returns whole segments to the host: those of the general pool, of unused pools, or of a given pool.
void release_unused(Memory& m, const c10::MempoolId_t& only, Happened& happened) {
  free_waiting(m, happened);
  for (auto at = m.pools.begin(); at != m.pools.end();) {
    SegmentPool& pool = at->second;
    const bool chosen = only == c10::MempoolId_t{0, 0} ? is_general(pool) || !pool.users : pool.id == only && !pool.users;
    if (chosen)
      for (auto& free : pool.free) {
        const std::vector<Piece*> pieces(free.begin(), free.end());
        for (Piece* piece : pieces)
          if (!is_split(*piece)) release(m, piece, happened);
      }
    const bool used = std::any_of(m.segments.begin(), m.segments.end(), [&](auto& s) { return s.second.pool == &pool; });
    at = used || pool.users || is_general(pool) ? std::next(at) : m.pools.erase(at);
  }
}

Piece* new_segment(Memory& m, SegmentPool& pool, size_t size, c10::StreamId stream, const Traceback& from, Happened& happened) {
  const size_t bytes = segment_for(size, m.limit);
  const bool large = size > kSmallMost;
  c10::DataPtr taken;
  for (const bool again : {false, true}) {
    if (again) {
      m.statistics.num_alloc_retries++;
      release_unused(m, {0, 0}, happened);
    }
    if (reserved_of(m) + bytes > most_of(m)) continue;
    try {
      taken = host_allocator()->allocate(bytes + kSmallest);  // the host aligns memory to fewer bytes
      break;
    } catch (const c10::Error&) {  // the host is out of memory
    }
  }
  if (!taken.get()) return nullptr;
  auto* address = reinterpret_cast<char*>(rounded(reinterpret_cast<uintptr_t>(taken.get()), kSmallest));
  Segment& segment =
      m.segments.emplace(address, Segment{std::move(taken), bytes, stream, &pool, large, from}).first->second;
  segment.first = new Piece{address, bytes, stream, &segment};
  add(m.statistics.segment, large, 1);
  add(m.statistics.reserved_bytes, large, static_cast<int64_t>(bytes));
  m.statistics.num_device_alloc++;
  happened.push_back({"segment_alloc", address, bytes, stream});
  return segment.first;
}

// The front of a free piece that was removed from its pool; the rest is returned to the pool.
Piece* front_of(Piece* piece, size_t size) {
  auto* front = new Piece{piece->address, size, piece->stream, piece->segment};
  front->previous = piece->previous;
  (front->previous ? front->previous->next : piece->segment->first) = front;
  front->next = piece;
  piece->previous = front;
  piece->address += size;
  piece->size -= size;
  piece->segment->pool->free[piece->segment->large].add(piece);
  return front;
}

SegmentPool& pool_for(Memory& m, c10::StreamId stream) {
  c10::MempoolId_t id = captured_pool();
  for (auto route = m.routes.rbegin(); route != m.routes.rend() && id == c10::MempoolId_t{0, 0}; ++route)
    if (route->stream ? *route->stream == stream : route->thread == std::this_thread::get_id()) id = route->pool;
  return id == c10::MempoolId_t{0, 0} ? general(m) : m.pools.try_emplace(id, SegmentPool{id}).first->second;
}

Piece* find_piece(Memory& m, const void* address) {  // null: no piece starts there
  auto segment = m.segments.upper_bound(static_cast<const char*>(address));
  if (segment == m.segments.begin()) return nullptr;
  for (Piece* piece = (--segment)->second.first; piece; piece = piece->next)
    if (piece->address == address) return piece;
  return nullptr;
}

void count_allocated(Memory& m, const Piece& piece, int sign) {
  const bool large = piece.segment->large;
  add(m.statistics.allocation, large, sign);
  add(m.statistics.allocated_bytes, large, sign * static_cast<int64_t>(piece.size));
  add(m.statistics.requested_bytes, large, sign * static_cast<int64_t>(piece.requested));
}
void count_active(Memory& m, const Piece& piece) {
  add(m.statistics.active, piece.segment->large, 1);
  add(m.statistics.active_bytes, piece.segment->large, static_cast<int64_t>(piece.size));
}

void give_back(Memory& m, Piece* piece, Happened& happened) {
  happened.push_back({"free_requested", piece->address, piece->requested, piece->stream});
  count_allocated(m, *piece, -1);
  piece->owner = nullptr;
  piece->free_at = 0.0;
  for (const c10::Stream& stream : piece->used_on) piece->free_at = std::max(piece->free_at, busy_until(stream));
  if (piece->free_at > milliseconds()) {
    piece->state = Piece::kWaiting;
    m.waiting.push_back(piece);
    return;
  }
  happened.push_back({"free_completed", piece->address, piece->requested, piece->stream});
  make_free(m, piece);
}

}  // namespace

bool keeps_segments() {
  // torch's own variable: every allocation is returned to the system immediately.
  static const bool off = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr;
  return backing.is_host() && !config.is_mps() && !off;
}

Piece* take_piece(DeviceIndex device, size_t bytes, Happened& happened) {
  Memory& m = memory(device);
  const c10::StreamId stream = current_stream(device).id();
  const Traceback from = traceback_of_allocation();
  const size_t size = std::max(kSmallest, rounded(bytes, kSmallest));
  if (size < bytes) return nullptr;  // overflow
  const bool large = size > kSmallMost;
  std::lock_guard<std::mutex> lock(m.mutex);
  free_waiting(m, happened);
  // The reserved memory may exceed a limit that was set later.
  if (m.limit && static_cast<size_t>(m.statistics.allocated_bytes[0].current) + size > m.limit) return nullptr;
  SegmentPool& pool = pool_for(m, stream);
  pool.users++;  // it is kept while unused segments are returned
  struct Leave {
    SegmentPool& pool;
    ~Leave() { pool.users--; }
  } leave{pool};
  auto& free = pool.free[large];
  const auto found = free.smallest_for(size, stream);
  Piece* piece;
  if (found != free.end() && (*found)->stream == stream) {
    piece = *found;
    free.remove(found);
  } else {
    piece = new_segment(m, pool, size, stream, from, happened);
    if (!piece) return nullptr;
  }
  const bool was_split = is_split(*piece);
  const size_t rest = piece->size - size;
  if (large ? rest > kSmallMost : rest >= kSmallest) {
    piece = front_of(piece, size);
    add(m.statistics.inactive_split_bytes, large, was_split ? -static_cast<int64_t>(size) : static_cast<int64_t>(rest));
    if (!was_split) add(m.statistics.inactive_split, large, 1);
  } else if (was_split) {
    add(m.statistics.inactive_split_bytes, large, -static_cast<int64_t>(piece->size));
    add(m.statistics.inactive_split, large, -1);
  }
  ASAN_POISON_MEMORY_REGION(piece->address, piece->size);
  ASAN_UNPOISON_MEMORY_REGION(piece->address, bytes);
  piece->state = Piece::kAllocated;
  piece->requested = bytes;
  piece->from = from;
  count_allocated(m, *piece, 1);
  count_active(m, *piece);
  happened.push_back({"alloc", piece->address, bytes, stream});
  return piece;
}

void give_back_piece(DeviceIndex device, Piece* const& of_owner, Happened& happened) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  if (of_owner) give_back(m, of_owner, happened);  // none: a checkpoint removed it
}

void own_piece(DeviceIndex device, Piece* piece, Piece** owner) {
  std::lock_guard<std::mutex> lock(memory(device).mutex);
  piece->owner = owner;
  *owner = piece;
}

void disown_piece(DeviceIndex device, Piece*& of_owner) {
  std::lock_guard<std::mutex> lock(memory(device).mutex);
  if (!of_owner) return;
  of_owner->owner = nullptr;
  of_owner = nullptr;
}

void use_piece_on(DeviceIndex device, Piece* const& of_owner, const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(memory(device).mutex);
  if (!of_owner || stream.id() == of_owner->stream) return;
  auto& known = of_owner->used_on;
  if (std::find(known.begin(), known.end(), stream) == known.end()) known.push_back(stream);
}

bool is_in_pool(DeviceIndex device, Piece* const& of_owner, const c10::MempoolId_t& pool) {
  std::lock_guard<std::mutex> lock(memory(device).mutex);
  return of_owner && of_owner->segment->pool->id == pool;
}

// ------------------------------------------------------------------------------------- memory that is not a piece of a segment
// Accelerators count whole multiples of `kSmallest` as allocated.
static int64_t counted(int64_t bytes) {
  return backing.is_host() ? bytes : static_cast<int64_t>(rounded(static_cast<size_t>(bytes), kSmallest));
}

static void add_foreign(Statistics& s, int64_t bytes, int64_t sign) {
  const bool large = static_cast<size_t>(bytes) > kSmallMost;
  const int64_t whole = counted(bytes);
  for (auto* of_bytes : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes}) add(*of_bytes, large, sign * whole);
  add(s.requested_bytes, large, sign * bytes);
  for (auto* of_blocks : {&s.allocation, &s.segment, &s.active}) add(*of_blocks, large, sign);
}

bool count_foreign(DeviceIndex device, int64_t bytes) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto whole = static_cast<size_t>(counted(bytes));
  if (m.limit && reserved_of(m) + whole > m.limit) {
    Happened unused;
    release_unused(m, {0, 0}, unused);
    if (reserved_of(m) + whole > m.limit) return false;
  }
  add_foreign(m.statistics, bytes, 1);
  m.statistics.num_device_alloc++;
  return true;
}

void uncount_foreign(DeviceIndex device, int64_t bytes) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  add_foreign(m.statistics, bytes, -1);
  m.statistics.num_device_free++;
}

// -------------------------------------------------------------------------------------------------------------- statistics
Statistics statistics(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  return m.statistics;
}

template <class F>
static void each_statistic(Statistics& s, F f) {
  for (auto* each : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                     &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes})
    for (const size_t kind : kKinds) f((*each)[kind]);
}

void reset_peak_statistics(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  each_statistic(m.statistics, [](auto& each) { each.reset_peak(); });
}

void reset_accumulated_statistics(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  each_statistic(m.statistics, [](auto& each) { each.reset_accumulated(); });
  auto& s = m.statistics;
  s.num_alloc_retries = s.num_ooms = s.num_sync_all_streams = s.num_device_alloc = s.num_device_free = 0;
}

std::vector<int64_t> flattened(Statistics statistics) {
  std::vector<int64_t> all;
  each_statistic(statistics, [&](const auto& each) {
    all.insert(all.end(), {each.current, each.peak, each.allocated, each.freed});
  });
  const auto& s = statistics;
  all.insert(all.end(), {s.num_alloc_retries, s.num_ooms, s.num_sync_all_streams, s.num_device_alloc, s.num_device_free});
  return all;
}

void count_refused(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  m.statistics.num_ooms++;
}

size_t memory_limit(DeviceIndex device) {
  return memory(device).limit.load(std::memory_order_relaxed);
}

void set_memory_limit(DeviceIndex device, size_t bytes) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  m.limit = bytes;
}

size_t usable_memory(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  return most_of(m);
}

// ---------------------------------------------------------------------------------------------------------------- pools
void keep_pool(DeviceIndex device, const c10::MempoolId_t& pool) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  m.pools.try_emplace(pool, SegmentPool{pool}).first->second.users++;
}

void drop_pool(DeviceIndex device, const c10::MempoolId_t& pool) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.pools.find(pool);
  if (found != m.pools.end() && found->second.users) found->second.users--;
}

int pool_users(DeviceIndex device, const c10::MempoolId_t& pool) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.pools.find(pool);
  return found == m.pools.end() ? 0 : found->second.users;
}

void route_to_pool(DeviceIndex device, const c10::MempoolId_t& pool, bool of_stream) {
  Route route{pool, std::nullopt, std::this_thread::get_id()};
  if (of_stream) route.stream = current_stream(device).id();
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  for (const Route& each : m.routes)
    TORCH_CHECK(each.pool != pool, "beginAllocateToPool: already recording to mempool_id");
  m.pools.try_emplace(pool, SegmentPool{pool}).first->second.users++;
  m.routes.push_back(route);
}

void end_route(DeviceIndex device, const c10::MempoolId_t& pool) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto last = std::find_if(m.routes.rbegin(), m.routes.rend(), [&](const Route& each) { return each.pool == pool; });
  if (last != m.routes.rend()) m.routes.erase(std::next(last).base());
}

void empty_segments(DeviceIndex device, const c10::MempoolId_t& only, Happened& happened) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  m.statistics.num_sync_all_streams++;
  release_unused(m, only, happened);
}

std::vector<SegmentView> view_segments(DeviceIndex device) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  std::vector<SegmentView> views;
  for (const auto& [address, segment] : m.segments) {
    views.push_back({address, segment.size, segment.stream, segment.pool->id, segment.large, segment.from, {}});
    for (const Piece* piece = segment.first; piece; piece = piece->next)
      views.back().pieces.push_back({piece->address, piece->size, piece->requested, piece->state, piece->from});
  }
  return views;
}

// ---------------------------------------------------------------------------------------------------------- checkpoints
void restore_pool(DeviceIndex device, const c10::MempoolId_t& pool, const std::vector<SegmentView>& before) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  for (const SegmentView& view : before) {
    const auto found = m.segments.find(view.address);
    TORCH_CHECK(found != m.segments.end() && found->second.pool->id == pool, "a segment of the checkpoint is gone");
    size_t sum = 0;
    for (const PieceView& each : view.pieces) sum += each.size;
    TORCH_CHECK(sum == found->second.size, "the blocks of the checkpoint do not fill their segment");
  }
  std::vector<Piece*> waiting;
  for (Piece* piece : m.waiting) {
    if (piece->segment->pool->id == pool) make_free(m, piece);
    else waiting.push_back(piece);
  }
  m.waiting.swap(waiting);
  std::map<const char*, Piece**> owners;  // of the memory that is held now
  for (auto& [address, segment] : m.segments) {
    if (segment.pool->id != pool) continue;
    for (Piece* piece = segment.first; piece;) {
      Piece* next = piece->next;
      if (piece->state == Piece::kAllocated) {
        if (piece->owner) owners[piece->address] = piece->owner;
        count_allocated(m, *piece, -1);
        make_free(m, piece);
        next = piece->next;
      }
      piece = next;
    }
  }
  std::set<const char*> kept;
  for (const SegmentView& view : before) {
    Segment& segment = m.segments.at(view.address);
    Piece* rest = segment.first;  // all of it is free
    for (const PieceView& each : view.pieces) {
      segment.pool->free[segment.large].remove(rest);
      Piece* piece = rest;
      if (each.size < rest->size) {
        piece = front_of(rest, each.size);
        rest = piece->next;
      }
      if (each.state == Piece::kFree) {
        segment.pool->free[segment.large].add(piece);
        if (is_split(*piece)) {
          add(m.statistics.inactive_split, segment.large, 1);
          add(m.statistics.inactive_split_bytes, segment.large, static_cast<int64_t>(piece->size));
        }
        continue;
      }
      ASAN_UNPOISON_MEMORY_REGION(piece->address, each.requested);
      piece->state = Piece::kAllocated;
      piece->requested = each.requested;
      count_allocated(m, *piece, 1);
      count_active(m, *piece);
      if (const auto owner = owners.find(piece->address); owner != owners.end()) {
        piece->owner = owner->second;
        *piece->owner = piece;
        kept.insert(piece->address);
      }
    }
  }
  for (auto& [address, owner] : owners)
    if (!kept.count(address)) *owner = nullptr;
}

Piece* piece_at(DeviceIndex device, const void* address) {
  Memory& m = memory(device);
  std::lock_guard<std::mutex> lock(m.mutex);
  Piece* piece = find_piece(m, address);
  return piece && piece->state == Piece::kAllocated && !piece->owner ? piece : nullptr;
}

}  // namespace torchdevice
