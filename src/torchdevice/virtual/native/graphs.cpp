// Graph capture: while a capture is active, every call on the device is recorded. A replay runs the calls again with
// the same outputs. Views are not recorded: they are arguments of the calls. Captured calls are executed (their results
// need shapes), but their writes to older tensors are undone at the end, because a real device runs nothing during a
// capture.
//
// A capture belongs to the thread that began it and to the threads of autograd that run a backward for it. torch passes
// them the "debug info" of the thread that called backward, and the capture is stored there. Other threads compute as
// usual, and may capture their own graphs.
#include "relabel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

namespace torchdevice {

std::atomic<int> open_captures{0};

namespace {

struct Noted {
  c10::OperatorHandle op;
  DispatchKeySet keys;
  Stack arguments, results;
};
struct Saved {
  Tensor tensor, before;
  size_t bytes;  // of the storage
};
struct Graph {
  const c10::MempoolId_t pool;  // the pool of its memory: the graph keeps the pool, not the tensors in it
  std::mutex mutex;             // threads of autograd may record calls concurrently
  const std::thread::id owner = std::this_thread::get_id();
  std::atomic<bool> open{true};
  std::vector<Noted> calls;
  std::unordered_map<const StorageImpl*, size_t> needed;  // bytes that the calls use of the storages that they hold
  std::vector<Saved> saved;                // the content of older tensors before the first write of the capture
  // Storages that were created during the capture. The address of a deleted one can only be reused by a storage of the
  // same capture.
  std::set<const StorageImpl*> own;
  std::vector<Tensor> held;                // those of them that no call created: their addresses are kept
  std::vector<std::pair<at::Generator, Tensor>> generators;  // of the backing, with their states before the capture
  std::unordered_map<const void*, c10::Storage> lent;        // storages over memory of the pool, by its address
  Tensor seed, offset;                                       // CUDA's graphs keep two numbers on the device

  explicit Graph(const c10::MempoolId_t& from) : pool(from) {
    for (DeviceIndex i = 0; i < config.count; i++) keep_pool(i, pool);
  }
  ~Graph() {
    for (DeviceIndex i = 0; i < config.count; i++) drop_pool(i, pool);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};
struct Graphs {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Graph>> all;  // shared with replays, which continue after a reset
  int64_t last = 0;

  std::shared_ptr<Graph> find(int64_t graph) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = all.find(graph);
    TORCH_CHECK(found != all.end(), "CUDA error: there is no graph ", graph);
    return found->second;
  }
  void close(Graph& graph) {
    if (graph.open.exchange(false)) open_captures--;
  }
};
Graphs& graphs() {
  static auto* g = outlives_forks<Graphs, &graphs>();
  return *g;
}
thread_local bool replaying = false;

// The graph that this thread captures, or captured last: it stays on the stack if another entry was put on top of it.
struct Capture final : c10::DebugInfoBase {
  std::shared_ptr<Graph> graph;
  explicit Capture(std::shared_ptr<Graph> g) : graph(std::move(g)) {}
};
// A slot that torch has for its own tests, in every version. Custom slots exist since 2.13. The parentheses select the
// overload: by value if it is an enumeration constant, as before 2.13, by reference if it is an object.
decltype(auto) slot() { return (c10::DebugInfoKind::TEST_INFO_2); }

std::shared_ptr<Graph> captured() {
  auto* capture = static_cast<Capture*>(c10::ThreadLocalDebugInfo::get(slot()));
  return capture && capture->graph->open ? capture->graph : nullptr;
}

// Removes a finished capture from this thread, unless a profiler that was started later is on top of it.
void forget_closed() {
  if (!c10::ThreadLocalDebugInfo::get(slot()) || captured()) return;
  try {
    c10::ThreadLocalDebugInfo::_pop(slot());
  } catch (const c10::Error&) {
  }
}

const StorageImpl* storage_of(const Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

// Sparse tensors have no storage; torch's `is_alias_of` raises an error for them.
bool share_memory(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (storage_of(a) != nullptr && storage_of(a) == storage_of(b));
}

bool is_in_pool_of(const Graph& graph, const Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  return impl->has_storage() && is_of_pool(impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), graph.pool);
}

void keep_state(Graph& graph, at::Generator generator) {
  for (const auto& kept : graph.generators)
    if (kept.first == generator) return;
  std::lock_guard<std::mutex> lock(generator.mutex());
  graph.generators.emplace_back(generator, generator.get_state());
}

// A tensor over the same memory with the present geometry: the program may change that of `t` later (`t_`, `resize_`,
// an assignment to `data`), during the capture or after it.
Tensor at_present(const Tensor& t) {
  if (!storage_of(t) || t.is_nested() || t.is_quantized()) return t;
  return Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true));
}

// The same for a call that is recorded. It has no reference to memory in the graph's pool, which may be reused.
Tensor recorded(Graph& graph, const Tensor& t) {
  Tensor present = at_present(t);
  if (!is_virtual(t) || present.is_same(t) || !is_in_pool_of(graph, t)) return present;
  auto* storage = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  void* address = storage->_mutable_data_ptr_no_checks().get();
  c10::Storage& lent = graph.lent[address];
  if (!lent || lent.nbytes() < storage->nbytes())
    lent = c10::Storage(
        c10::Storage::use_byte_size_t(), storage->nbytes(), c10::DataPtr(address, storage->device()), virtual_allocator(), false);
  present.unsafeGetTensorImpl()->set_storage_keep_dtype(lent);
  return present;
}

// Notes how much memory a recorded tensor uses.
void note_needed(Graph& graph, const Tensor& t) {
  const auto* storage = t.is_nested() ? nullptr : storage_of(t);
  if (!storage) return;
  const size_t bytes = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size(), t.storage_offset());
  size_t& most = graph.needed[storage];
  most = std::max(most, bytes);
}

// A CUDA kernel receives the value of a number on the CPU, so a graph keeps it. Numbers of Python stay as they are: they
// count less in the dtype of a result.
bool is_number_of_cpu(const Tensor& t) {
  return t.device().is_cpu() && t.dim() == 0 && t.layout() == c10::kStrided && !t.unsafeGetTensorImpl()->is_wrapped_number();
}

bool has_geometry_of(const Tensor& a, const Tensor& b) {
  return storage_of(a) == storage_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
      a.strides() == b.strides() && a.dtype() == b.dtype();
}

c10::IValue recorded(Graph& graph, const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() ? recorded(graph, v.toTensor()) : v;
  if (v.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : v.toTensorVector()) list.push_back(t.defined() ? recorded(graph, t) : t);
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const auto& t : v.toOptionalTensorVector())
      list.push_back(t && t->defined() ? std::optional<Tensor>(recorded(graph, *t)) : t);
    return list;
  }
  return v;
}

}  // namespace

c10::MempoolId_t captured_pool() {
  if (C10_LIKELY(open_captures.load(std::memory_order_relaxed) == 0) || replaying) return {0, 0};
  const auto graph = captured();
  return graph ? graph->pool : c10::MempoolId_t{0, 0};
}

void capture_call(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack arguments, const Stack& stack, size_t results_from) {
  const auto found = captured();
  if (!found) return;  // ended by the thread that this one works for
  Graph& graph = *found;
  std::lock_guard<std::mutex> lock(graph.mutex);
  Noted noted{op, keys, std::move(arguments), Stack(stack.begin() + static_cast<long>(results_from), stack.end())};
  for (const auto& r : noted.results)
    each_tensor(r, [&](const Tensor& t) {
      bool is_input = false;
      for (const auto& a : noted.arguments) each_tensor(a, [&](const Tensor& in) { is_input |= share_memory(in, t); });
      if (!is_input && storage_of(t)) graph.own.insert(storage_of(t));
    });
  static const auto copies = c10::Symbol::fromQualString("aten::copy_");  // from memory of the CPU, as it is then
  const bool keeps_numbers = op.schema().name() != copies.toQualString();
  for (auto& v : noted.arguments)
    v = keeps_numbers && v.isTensor() && v.toTensor().defined() && is_number_of_cpu(v.toTensor()) ? v.toTensor().clone()
                                                                                                  : recorded(graph, v);
  for (auto& v : noted.results) v = recorded(graph, v);
  for (const auto* values : {&noted.arguments, &noted.results})
    for (const auto& v : *values) each_tensor(v, [&](const Tensor& t) { note_needed(graph, t); });
  graph.calls.push_back(std::move(noted));
}

at::Generator capture_generator(const std::optional<at::Generator>& asked, Device device) {
  const auto found = captured();
  const at::Generator inner = backing_generator(asked, device);
  if (found) {
    std::lock_guard<std::mutex> lock(found->mutex);
    keep_state(*found, inner);
  }
  return virtual_generator(asked, device).graphsafe_get_state();
}

bool captures_here() { return !replaying && captured(); }

void refuse_to_wait() { raise_driver_error(kCapturing); }

int64_t capture_begin(const c10::MempoolId_t& pool) {
  TORCH_CHECK(!captured(), "CUDA error: a graph is being captured already");
  forget_closed();
  const auto graph = std::make_shared<Graph>(pool);
  const auto number = at::TensorOptions(at::kLong).device(Device(config.type, current_device()));
  graph->seed = at::empty({1}, number);
  graph->offset = at::empty({1}, number);
  for (int i = 0; i < config.count; i++) {
    keep_state(*graph, backing_generator(std::nullopt, Device(config.type, static_cast<DeviceIndex>(i))));
  }
  c10::ThreadLocalDebugInfo::_push(slot(), std::make_shared<Capture>(graph));
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.all[++g.last] = graph;
  open_captures++;
  return g.last;
}

void capture_touch(const Tensor& written) {
  const auto found = captured();
  if (!found) return;
  Graph& graph = *found;
  std::lock_guard<std::mutex> lock(graph.mutex);
  const auto* storage = storage_of(written);
  if (!storage || graph.own.count(storage)) return;
  for (const auto& s : graph.saved)
    if (has_geometry_of(s.tensor, written)) return;
  at::AutoDispatchBelowADInplaceOrView guard;
  Call call;
  const Tensor before = is_virtual(written) ? call.stand_in(written).clone() : written.clone();
  graph.saved.push_back({at_present(written), before, storage->nbytes()});
}

void capture_own(const Tensor& made) {
  const auto found = captured();
  if (!found) return;
  std::lock_guard<std::mutex> lock(found->mutex);
  found->own.insert(storage_of(made));
  if (!is_in_pool_of(*found, made)) found->held.push_back(made);
}

void capture_copy(const Tensor& self, const Tensor& src) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Stack arguments{self, src, false};
  capture_call(op, DispatchKeySet(config.key()), arguments, arguments, arguments.size());
}

void capture_end(int64_t graph) {
  const auto found = graphs().find(graph);
  TORCH_CHECK(found->open, "CUDA error: graph ", graph, " is not being captured");
  if (found->owner != std::this_thread::get_id()) raise_driver_error(kWrongThread);
  graphs().close(*found);
  forget_closed();
  std::lock_guard<std::mutex> lock(found->mutex);
  at::AutoDispatchBelowADInplaceOrView guard;
  auto& saved = found->saved;
  for (auto it = saved.rbegin(); it != saved.rend(); ++it) {
    if (storage_of(it->tensor)->nbytes() != it->bytes) continue;  // new memory: a real device loses the old content too
    Call call;
    (is_virtual(it->tensor) ? call.stand_in(it->tensor, true) : it->tensor).copy_(it->before);
  }
  saved.clear();
  // Random numbers are drawn during the replay.
  for (auto& [generator, state] : found->generators) {
    std::lock_guard<std::mutex> drawing(generator.mutex());
    generator.set_state(state);
  }
}

void capture_replay(int64_t graph) {
  const auto found = graphs().find(graph);
  TORCH_CHECK(!found->open, "CUDA error: graph ", graph, " is still being captured");
  for (const auto& [storage, bytes] : found->needed)
    TORCH_CHECK(storage->nbytes() >= bytes,
                "CUDA error: a graph was replayed after memory of its capture was released: a storage of at least ", bytes,
                " bytes has ", storage->nbytes(), " bytes now. Hint: keep the tensors that a graph uses, or capture again.");
  replaying = true;
  struct Reset {
    ~Reset() { replaying = false; }
  } reset;
  at::AutoDispatchBelowADInplaceOrView guard;
  for (auto& noted : found->calls) {
    Stack stack = noted.arguments;
    noted.op.redispatchBoxed(noted.keys, &stack);
    for (size_t i = 0; i < noted.results.size(); i++) {
      std::vector<Tensor> into, from;
      each_tensor(noted.results[i], [&](const Tensor& t) { into.push_back(t); });
      each_tensor(stack[stack.size() - noted.results.size() + i], [&](const Tensor& t) { from.push_back(t); });
      for (size_t k = 0; k < into.size(); k++)
        if (!share_memory(into[k], from[k])) into[k].copy_(from[k]);
    }
  }
}

void capture_drop(int64_t graph) {
  auto& g = graphs();
  std::shared_ptr<Graph> dropped;  // freed last: its tensors may take long
  {
    std::lock_guard<std::mutex> lock(g.mutex);
    const auto found = g.all.find(graph);
    if (found == g.all.end()) return;
    dropped = std::move(found->second);
    g.all.erase(found);
  }
  g.close(*dropped);
  if (dropped->owner == std::this_thread::get_id()) forget_closed();
}

}  // namespace torchdevice
