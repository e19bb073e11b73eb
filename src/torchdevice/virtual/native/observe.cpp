// Measures the time and the memory of every operator in all threads, by name and by the device type of its tensors.
//
// A separate library, for `run --profile`, also on real devices. It is in this folder because all C++ sources are
// compiled here. A callback of torch (RecordFunction) encloses each operator. The time of nested operators is not
// counted for the outer one. The time between push and pop (an operator that runs on another device) is counted as one
// piece, for the enclosing operator.
//
// Memory is read before and after each operator: from the device's allocator, or on the CPU from the counter of CPU
// memory. Memory that `aten::empty` allocates for another operator is counted for that one. The line of user code is read
// after each outermost operator that allocated memory or copied between devices, from the frames of Python. No Python
// code runs for it: a pending KeyboardInterrupt would be raised in that code and lost.
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <dlfcn.h>
#include <pthread.h>
#include <exception>
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
  int64_t allocated = 0;
  int64_t held = 0;  // the most bytes in use when an operator ended
  int64_t copied = 0;  // bytes between devices; only for lines

  void add(const Figure& other) {
    calls += other.calls;
    nanoseconds += other.nanoseconds;
    allocated += other.allocated;
    held = std::max(held, other.held);
    copied += other.copied;
  }
};

struct Event {
  const std::string* name;
  c10::DeviceType device;
  int64_t started;
  int64_t nanoseconds;
};

// One per thread, so that threads do not wait for each other. The mutex is for the reader.
struct Table {
  std::mutex mutex;
  std::map<std::string, Figure, std::less<>> figures[static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)];
  std::map<std::pair<std::string, std::string>, Figure> elsewhere;  // operator, label
  std::map<std::pair<std::string, int>, Figure> lines;              // file, line
  std::vector<Event> events;
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

struct Memory {
  int64_t allocated = 0;  // since the process started, memory that was freed included
  int64_t held = 0;
};

struct Running : at::ObserverContext {
  Running* around = nullptr;
  const char* name = nullptr;
  std::string label;  // the executor, if it runs on another device
  c10::Device device = c10::kCPU;
  int64_t started = 0;
  int64_t whole = 0;
  int64_t nested = 0;
  Memory before;
  int64_t allocated_nested = 0;
  int64_t copied = 0;
  bool ran_elsewhere = false;
  bool is_half = false;  // it has a float16 tensor, and all are on the CPU
};

std::atomic<int64_t> half_nanoseconds{0};
std::atomic<int64_t> busy_nanoseconds{0};
std::atomic<int64_t> events_left{0};
int64_t events_since = 0;
int64_t (*cpu_allocated)() = nullptr;  // by the calling thread
int64_t (*cpu_held)() = nullptr;
thread_local Running* innermost = nullptr;
thread_local std::vector<std::unique_ptr<Running>> pushed;

// The allocators of accelerators that have statistics, by device type.
c10::DeviceAllocator* allocator_of(c10::DeviceType type) {
  struct Known {
    std::atomic<bool> looked{false};
    std::atomic<c10::DeviceAllocator*> found{nullptr};
  };
  static std::array<Known, static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)> all;
  Known& known = all[static_cast<int>(type)];
  if (!known.looked) {
    try {
      if (c10::impl::hasDeviceGuardImpl(type)) known.found = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
    } catch (const c10::Error&) {  // no allocator is registered
    }
    known.looked = true;
  }
  return known.found;
}

Memory memory_of(c10::Device device) {
  if (device.is_cpu()) {
    return cpu_allocated != nullptr ? Memory{cpu_allocated(), cpu_held()} : Memory{};
  }
  auto* allocator = allocator_of(device.type());
  if (allocator == nullptr || !allocator->initialized()) return {};
  try {
    const auto* guard = c10::impl::getDeviceGuardImpl(device.type());
    const auto index = device.has_index() ? device.index() : guard->getDevice().index();
    const auto stats = allocator->getDeviceStats(index);
    const auto& bytes = stats.allocated_bytes[0];
    return {bytes.allocated, bytes.current};
  } catch (const c10::Error&) {  // the device is lost, or a forked child may not use it
    return {};
  }
}

// CUDA has a switch for synchronous launches. On other accelerators an operator is complete after this.
void wait_for(c10::Device device) {
  if (device.is_cpu() || device.is_cuda() || !c10::impl::hasDeviceGuardImpl(device.type())) return;
  const auto* guard = c10::impl::getDeviceGuardImpl(device.type());
  try {
    guard->synchronizeDevice(device.has_index() ? device.index() : guard->getDevice().index());
  } catch (const c10::Error&) {  // a graph is being captured, or the device type has no such function
  }
}

int64_t copied_by(const at::RecordFunction& function, std::string_view name) {
  if (name != "aten::copy_" || function.inputs().size() < 2) return 0;
  const c10::IValue &to = function.inputs()[0], &from = function.inputs()[1];
  if (!to.isTensor() || !from.isTensor() || to.toTensor().device() == from.toTensor().device()) return 0;
  return from.toTensor().numel() * static_cast<int64_t>(from.toTensor().itemsize());
}

bool makes_room(std::string_view name) { return name.starts_with("aten::empty"); }

c10::Device device_of(const at::RecordFunction& function, bool& is_half) {
  c10::Device found = c10::kCPU;
  auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !found.is_cpu()) return;
    found = tensor.device();
    is_half = found.is_cpu() && (is_half || tensor.scalar_type() == at::kHalf);
  };
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& each : value.toListRef()) look(each.toTensor());
    } else if (value.isDevice() && found.is_cpu()) {
      found = value.toDevice();
    }
    if (!found.is_cpu()) break;
  }
  return found;
}

void enter(Running& running) {
  running.before = memory_of(running.device);
  running.around = innermost;
  innermost = &running;
  running.started = now();
}

// The operator's own figures. Its total is subtracted from that of the enclosing operator.
Figure leave(Running& running) {
  Running* around = running.around;
  innermost = around;
  if (!makes_room(running.name)) wait_for(running.device);
  const int64_t whole = running.whole = now() - running.started;
  const Memory after = memory_of(running.device);
  const int64_t allocated = after.allocated - running.before.allocated;
  if (around == nullptr) {
    busy_nanoseconds += whole;
  } else {
    around->nested += whole;
    around->copied += running.copied;
    if (around->device == running.device && !makes_room(running.name)) around->allocated_nested += allocated;
  }
  const bool for_another = around != nullptr && around->device == running.device && makes_room(running.name);
  const int64_t own = for_another ? 0 : allocated - running.allocated_nested;
  return {1, whole - running.nested, own, after.held};
}

// Python's functions by name, because its headers may not be installed. Objects are untyped.
struct Python {
  template <class F>
  static void find(F& function, const char* name) { function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name)); }
  void* (*state)();
  int (*ensure)();
  void (*release)(int);
  void* (*error)();
  void (*clear)();
  void* (*frame)();                           // of this thread, borrowed
  void* (*frame_of)(void*);                   // of a thread state; the others return new references, too
  void* (*back)(void*);
  void* (*code)(void*);
  int (*line)(void*);
  void* (*attribute)(void*, const char*);
  void* (*item)(void*, const char*);          // of a dict, borrowed
  const char* (*text)(void*);
  void (*keep)(void*);
  void (*drop)(void*);
  bool complete;

  Python() {
    find(state, "PyGILState_GetThisThreadState");
    find(ensure, "PyGILState_Ensure");
    find(release, "PyGILState_Release");
    find(error, "PyErr_Occurred");
    find(clear, "PyErr_Clear");
    find(frame, "PyEval_GetFrame");
    find(frame_of, "PyThreadState_GetFrame");
    find(back, "PyFrame_GetBack");
    find(code, "PyFrame_GetCode");
    find(line, "PyFrame_GetLineNumber");
    find(attribute, "PyObject_GetAttrString");
    find(item, "PyDict_GetItemString");
    find(text, "PyUnicode_AsUTF8");
    find(keep, "Py_IncRef");
    find(drop, "Py_DecRef");
    complete = state && ensure && release && error && clear && frame && frame_of && back && code && line && attribute &&
               item && text && keep && drop;
  }
};

const Python& python() {
  static const Python found;
  return found;
}

// What a file is, by the folders that the caller gave: torch and TorchDevice, installed packages, the standard library.
enum class Role { kUser, kLibrary, kInner };
std::vector<std::string> inner_folders, library_folders, standard_folders;
void* main_thread = nullptr;

bool is_below(const std::string& file, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) { return file.starts_with(folder); });
}

// The name of code that is not in a file begins with "<". Only that of the program itself is user code.
bool is_main(void* frame) {
  void* globals = python().attribute(frame, "f_globals");
  void* name = globals != nullptr ? python().item(globals, "__name__") : nullptr;
  const char* text = name != nullptr ? python().text(name) : nullptr;
  const bool found = text != nullptr && std::string_view(text) == "__main__";
  if (globals != nullptr) python().drop(globals);
  return found;
}

Role role_of(void* frame, const std::string& file) {
  if (file.starts_with("<")) return is_main(frame) ? Role::kUser : Role::kInner;
  if (is_below(file, inner_folders)) return Role::kInner;
  if (is_below(file, library_folders)) return Role::kLibrary;
  return is_below(file, standard_folders) ? Role::kInner : Role::kUser;
}

using Line = std::pair<std::string, int>;

// The nearest line of user code; without one, the nearest of an installed package. Takes the reference.
Line line_of(void* frame) {
  Line library;
  while (frame != nullptr) {
    void* code = python().code(frame);
    void* name = python().attribute(code, "co_filename");
    const char* text = name != nullptr ? python().text(name) : nullptr;
    const Line here{text != nullptr ? text : "", python().line(frame)};
    const Role role = text != nullptr ? role_of(frame, here.first) : Role::kInner;
    if (name != nullptr) python().drop(name);
    python().drop(code);
    void* caller = role == Role::kUser ? nullptr : python().back(frame);
    python().drop(frame);
    if (role == Role::kUser) return here;
    if (role == Role::kLibrary && library.first.empty()) library = here;
    frame = caller;
  }
  return library;
}

// The line of user code that runs; empty: not known. A thread of autograd runs no user code: its work is that of the line
// which the main thread runs. Threads without a Python state may not wait for the interpreter.
Line current_line() {
  if (!python().complete || main_thread == nullptr || python().state() == nullptr || std::uncaught_exceptions() != 0) return {};
  const int lock = python().ensure();
  Line found;
  if (python().error() == nullptr) {
    void* frame = python().frame();
    if (frame != nullptr) {
      python().keep(frame);
      found = line_of(frame);
    }
    if (found.first.empty()) found = line_of(python().frame_of(main_thread));
    python().clear();
  }
  python().release(lock);
  return found;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const int64_t copied = copied_by(function, name);
  if (innermost != nullptr && !innermost->label.empty()) {
    innermost->copied += copied;
    return nullptr;
  }
  if (name.starts_with("autograd::engine")) return nullptr;  // ranges around operators, not operators
  auto running = std::make_unique<Running>();
  running->name = function.name();
  running->device = device_of(function, running->is_half);
  running->copied = copied;
  enter(*running);
  return running;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* running = static_cast<Running*>(context);
  if (running == nullptr || innermost != running) return;  // it began before the observation, or ended on another thread
  Figure own = leave(*running);
  if (running->is_half) half_nanoseconds += own.nanoseconds;
  const Figure outer{0, 0, own.allocated + running->allocated_nested, own.held, running->copied};
  const bool asks = running->around == nullptr && (outer.allocated != 0 || outer.copied != 0);
  const Line line = asks ? current_line() : Line{};
  if (running->ran_elsewhere) own.calls = 0;  // the rest is the time of the copies
  Table& table = own_table();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto& figures = table.figures[static_cast<int>(running->device.type())];
  auto found = figures.find(std::string_view(function.name()));
  if (found == figures.end()) found = figures.emplace(function.name(), Figure{}).first;
  found->second.add(own);
  if (!line.first.empty()) table.lines[line].add(outer);
  if (events_left.fetch_sub(1, std::memory_order_relaxed) > 0) {
    table.events.push_back({&found->first, running->device.type(), running->started, running->whole});
  }
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
  if (innermost != nullptr) running.device = innermost->device;
  if (innermost != nullptr) innermost->ran_elsewhere = true;
  enter(running);
  return 0;
}

EXPORT int td_observe_pop() {
  if (pushed.empty()) return 0;
  Running& running = *pushed.back();
  if (innermost == &running) {
    const Figure own = leave(running);
    Table& table = own_table();
    std::lock_guard<std::mutex> lock(table.mutex);
    table.elsewhere[{running.name, running.label}].add(own);
  }
  pushed.pop_back();
  return 0;
}

// The memory of the CPU: functions of the library that counts it.
EXPORT void td_observe_memory(int64_t (*allocated)(), int64_t (*held)()) {
  const bool both = allocated != nullptr && held != nullptr;
  cpu_held = both ? held : nullptr;
  cpu_allocated = both ? allocated : nullptr;
}

// Find lines from now on. Folders that are not user code, in lines; the caller runs in the main thread.
EXPORT void td_observe_lines(const char* inner, const char* libraries, const char* standard) {
  auto split = [](const char* lines) {
    std::vector<std::string> parts;
    std::string_view text = lines != nullptr ? lines : "";
    for (size_t end; !text.empty(); text.remove_prefix(std::min(text.size(), end + 1))) {
      end = std::min(text.find('\n'), text.size());
      parts.emplace_back(text.substr(0, end));
    }
    return parts;
  };
  inner_folders = split(inner), library_folders = split(libraries), standard_folders = split(standard);
  if (!python().complete) return;
  main_thread = python().state();
  // A forked child reports no figures, and its main thread may be another one.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { main_thread = nullptr; });
  (void)registered;
}

// Keep the next events, for a trace. Their times are counted from here.
EXPORT void td_observe_events(int64_t most) {
  events_since = now();
  events_left = most;
}

// The time of operators with float16 on the CPU, and of all operators that are not inside another one.
EXPORT int64_t td_observed_half() { return half_nanoseconds; }
EXPORT int64_t td_observed_busy() { return busy_nanoseconds; }

// The bytes in use on a device; -1: not known.
EXPORT int64_t td_observed_held(const char* device) {
  try {
    const c10::Device asked{std::string(device != nullptr ? device : "")};
    if (asked.is_cpu() ? cpu_held == nullptr : allocator_of(asked.type()) == nullptr) return -1;
    return memory_of(asked).held;
  } catch (const c10::Error&) {  // torch knows no such device
    return -1;
  }
}

// Rows of "operator\tdevice or label\tcalls\tnanoseconds\tallocated\theld".
EXPORT const char* td_observed() {
  std::map<std::string, Figure> whole;
  std::lock_guard<std::mutex> all(tables_mutex);
  for (auto& table : tables) {
    std::lock_guard<std::mutex> lock(table->mutex);
    auto add = [&](const std::string& name, const std::string& where, const Figure& figure) {
      whole[in_one_cell(name) + "\t" + in_one_cell(where)].add(figure);
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
    text += key;
    for (int64_t each : {figure.calls, figure.nanoseconds, figure.allocated, figure.held}) {
      text += "\t" + std::to_string(each);
    }
    text += "\n";
  }
  return text.c_str();
}

// Rows of "file\tline\tallocated\theld\tcopied".
EXPORT const char* td_observed_lines() {
  std::map<Line, Figure> whole;
  std::lock_guard<std::mutex> all(tables_mutex);
  for (auto& table : tables) {
    std::lock_guard<std::mutex> lock(table->mutex);
    for (auto& [line, figure] : table->lines) whole[line].add(figure);
  }
  text.clear();
  for (auto& [line, figure] : whole) {
    text += in_one_cell(line.first) + "\t" + std::to_string(line.second) + "\t" + std::to_string(figure.allocated) + "\t" +
            std::to_string(figure.held) + "\t" + std::to_string(figure.copied) + "\n";
  }
  return text.c_str();
}

// Rows of "operator\tdevice\tthread\tstart in nanoseconds\tnanoseconds".
EXPORT const char* td_observed_events() {
  std::lock_guard<std::mutex> all(tables_mutex);
  text.clear();
  for (size_t thread = 0; thread < tables.size(); ++thread) {
    std::lock_guard<std::mutex> lock(tables[thread]->mutex);
    for (const Event& event : tables[thread]->events) {
      text += in_one_cell(*event.name) + "\t" + c10::DeviceTypeName(event.device, true) + "\t" + std::to_string(thread) +
              "\t" + std::to_string(event.started - events_since) + "\t" + std::to_string(event.nanoseconds) + "\n";
    }
  }
  return text.c_str();
}
