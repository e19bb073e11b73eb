// Measures the time of every operator in all threads, by name and by the device type of its tensors.
//
// A separate library, for `run --profile`, also on real devices. It is in this folder because all C++ sources are
// compiled here. A callback of torch (RecordFunction) encloses each operator. The time of nested operators is not
// counted for the outer one. The time between push and pop (an operator that runs on another device) is counted as one
// piece, for the enclosing operator.
#include <ATen/record_function.h>
#include <c10/core/DeviceType.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Figure {
  int64_t calls = 0;
  int64_t nanoseconds = 0;
};

// One per thread, so that threads do not wait for each other. The mutex is for the reader.
struct Table {
  std::mutex mutex;
  std::map<std::string, Figure, std::less<>> figures[static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)];
  std::map<std::pair<std::string, std::string>, Figure> elsewhere;  // operator, label
};

std::mutex tables_mutex;
std::vector<std::shared_ptr<Table>> tables;

Table& own_table() {
  thread_local std::shared_ptr<Table> own = [] {
    auto made = std::make_shared<Table>();
    std::lock_guard<std::mutex> lock(tables_mutex);
    tables.push_back(made);
    return made;
  }();
  return *own;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Running : at::ObserverContext {
  Running* around = nullptr;
  const char* name = nullptr;
  std::string label;  // the executor, if it runs on another device
  c10::DeviceType device = c10::DeviceType::CPU;
  int64_t started = 0;
  int64_t nested = 0;
  bool ran_elsewhere = false;
  bool is_half = false;  // it has a float16 tensor, and all are on the CPU
};

std::atomic<int64_t> half_nanoseconds{0};
thread_local Running* innermost = nullptr;
thread_local std::vector<std::unique_ptr<Running>> pushed;

c10::DeviceType device_of(const at::RecordFunction& function, bool& is_half) {
  c10::DeviceType found = c10::DeviceType::CPU;
  auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || found != c10::DeviceType::CPU) return;
    found = tensor.device().type();
    is_half = found == c10::DeviceType::CPU && (is_half || tensor.scalar_type() == at::kHalf);
  };
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& each : value.toListRef()) look(each.toTensor());
    } else if (value.isDevice() && found == c10::DeviceType::CPU) {
      found = value.toDevice().type();
    }
    if (found != c10::DeviceType::CPU) break;
  }
  return found;
}

void enter(Running& running) {
  running.around = innermost;
  innermost = &running;
  running.started = now();
}

// The operator's own time. Its total time is subtracted from that of the enclosing operator.
int64_t leave(Running& running) {
  const int64_t whole = now() - running.started;
  innermost = running.around;
  if (innermost != nullptr) innermost->nested += whole;
  return whole - running.nested;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (innermost != nullptr && !innermost->label.empty()) return nullptr;
  const std::string_view name = function.name();
  if (name.starts_with("autograd::engine")) return nullptr;  // ranges around operators, not operators
  auto running = std::make_unique<Running>();
  running->name = function.name();
  running->device = device_of(function, running->is_half);
  enter(*running);
  return running;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* running = static_cast<Running*>(context);
  if (running == nullptr || innermost != running) return;  // it began before the observation, or ended on another thread
  const int64_t own = leave(*running);
  if (running->is_half) half_nanoseconds += own;
  Table& table = own_table();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto& figures = table.figures[static_cast<int>(running->device)];
  auto found = figures.find(std::string_view(function.name()));
  if (found == figures.end()) found = figures.emplace(function.name(), Figure{}).first;
  found->second.calls += running->ran_elsewhere ? 0 : 1;  // the rest is the time of the copies
  found->second.nanoseconds += own;
}

// A program may give its functions any name. Tabs and line breaks separate columns and rows.
std::string in_one_cell(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return name;
}

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
thread_local std::string text;  // of the last result: valid until the next call on this thread

}  // namespace

EXPORT int td_observe() {
  if (handle == at::INVALID_CALLBACK_HANDLE) {
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(on_start, on_end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  return 0;
}

EXPORT int td_observe_stop() {
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  return 0;
}

EXPORT int td_observe_push(const char* label) {
  pushed.push_back(std::make_unique<Running>());
  Running& running = *pushed.back();
  running.name = innermost != nullptr && innermost->name != nullptr ? innermost->name : "";
  running.label = label != nullptr && *label ? label : "elsewhere";
  if (innermost != nullptr) innermost->ran_elsewhere = true;
  enter(running);
  return 0;
}

EXPORT int td_observe_pop() {
  if (pushed.empty()) return 0;
  Running& running = *pushed.back();
  if (innermost == &running) {
    const int64_t own = leave(running);
    Table& table = own_table();
    std::lock_guard<std::mutex> lock(table.mutex);
    Figure& figure = table.elsewhere[{running.name, running.label}];
    figure.calls += 1;
    figure.nanoseconds += own;
  }
  pushed.pop_back();
  return 0;
}

// The time of operators with float16 on the CPU.
EXPORT int64_t td_observed_half() { return half_nanoseconds; }

// Rows of "operator\tdevice or label\tcalls\tnanoseconds".
EXPORT const char* td_observed() {
  std::map<std::string, Figure> whole;
  std::lock_guard<std::mutex> all(tables_mutex);
  for (auto& table : tables) {
    std::lock_guard<std::mutex> lock(table->mutex);
    auto add = [&](const std::string& name, const std::string& where, const Figure& figure) {
      const std::string key = in_one_cell(name) + "\t" + in_one_cell(where);
      whole[key].calls += figure.calls;
      whole[key].nanoseconds += figure.nanoseconds;
    };
    for (int type = 0; type < static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES); ++type) {
      for (auto& [name, figure] : table->figures[type]) {
        add(name, c10::DeviceTypeName(static_cast<c10::DeviceType>(type), true), figure);
      }
    }
    for (auto& [key, figure] : table->elsewhere) add(key.first, key.second, figure);
  }
  text.clear();
  for (auto& [key, figure] : whole) {
    text += key + "\t" + std::to_string(figure.calls) + "\t" + std::to_string(figure.nanoseconds) + "\n";
  }
  return text.c_str();
}
