// Graph capture: while a graph is open every call on the device is noted; replay runs them again into the same outputs.
// Views need no note: they are arguments of the calls. Captured work is carried out (its results must have shapes), but
// what it wrote to tensors from before is taken back at the end: on a real device nothing runs during a capture.
#include "relabel.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace torchdevice {

namespace {

struct Noted {
  c10::OperatorHandle op;
  DispatchKeySet keys;
  Stack arguments, results;
};
struct Saved {
  Tensor tensor, before;
};
struct Graph {
  std::vector<Noted> calls;
  std::vector<Saved> saved;                // what pre-existing tensors held when the capture first wrote to them
  std::set<const StorageImpl*> own;        // storages made during the capture
};
struct Graphs {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Graph>> all;  // shared with replays, which a drop does not end
  int64_t last = 0;
  std::atomic<int64_t> open{0};

  std::shared_ptr<Graph> find(int64_t graph) const {
    const auto found = all.find(graph);
    return found == all.end() ? nullptr : found->second;
  }
};
Graphs& graphs() {
  static auto* g = new Graphs;
  return *g;
}
thread_local bool replaying = false;

const StorageImpl* storage_of(const Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

void capture_call(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack arguments, const Stack& stack, size_t results_from) {
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  const auto found = g.find(g.open);
  if (!found) return;  // ended meanwhile, by another thread
  Graph& graph = *found;
  Noted noted{op, keys, std::move(arguments), Stack(stack.begin() + static_cast<long>(results_from), stack.end())};
  for (const auto& r : noted.results)
    each_tensor(r, [&](const Tensor& t) {
      bool is_input = false;
      for (const auto& a : noted.arguments) each_tensor(a, [&](const Tensor& in) { is_input |= in.is_alias_of(t); });
      if (!is_input && storage_of(t)) graph.own.insert(storage_of(t));
    });
  graph.calls.push_back(std::move(noted));
}

bool capturing() { return graphs().open.load(std::memory_order_relaxed) != 0 && !replaying; }

int64_t capture_begin() {
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  TORCH_CHECK(!g.open, "CUDA error: a graph is being captured already");
  g.all[++g.last] = std::make_shared<Graph>();
  g.open = g.last;
  return g.last;
}

void capture_touch(const Tensor& written) {
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  const auto found = g.find(g.open);
  if (!found) return;
  Graph& graph = *found;
  const auto* storage = storage_of(written);
  if (!is_virtual(written) || !storage || graph.own.count(storage)) return;
  for (const auto& s : graph.saved)
    if (s.tensor.is_alias_of(written) && s.tensor.is_same(written)) return;
  at::AutoDispatchBelowADInplaceOrView guard;
  graph.saved.push_back({written, physical_alias(written).clone()});
}

void capture_copy(const Tensor& self, const Tensor& src) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Stack arguments{self, src, false};
  capture_call(op, DispatchKeySet(config.key()), arguments, arguments, arguments.size());
}

void capture_end(int64_t graph) {
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  TORCH_CHECK(graph != 0 && g.open == graph, "CUDA error: graph ", graph, " is not being captured");
  g.open = 0;
  at::AutoDispatchBelowADInplaceOrView guard;
  auto& saved = g.all.at(graph)->saved;
  for (auto it = saved.rbegin(); it != saved.rend(); ++it) physical_alias(it->tensor).copy_(it->before);
  saved.clear();
}

void capture_replay(int64_t graph) {
  std::shared_ptr<Graph> found;
  {
    auto& g = graphs();
    std::lock_guard<std::mutex> lock(g.mutex);
    TORCH_CHECK(g.open != graph, "CUDA error: graph ", graph, " is still being captured");
    found = g.find(graph);
  }
  TORCH_CHECK(found, "CUDA error: there is no graph ", graph);
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
        if (!into[k].is_alias_of(from[k])) into[k].copy_(from[k]);
    }
  }
}

void capture_drop(int64_t graph) {
  auto& g = graphs();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.all.erase(graph);
  if (g.open == graph) g.open = 0;
}

}  // namespace torchdevice
