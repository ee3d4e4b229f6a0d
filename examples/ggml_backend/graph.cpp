// Owns the way from a ggml graph to launches: operations that were seen before are not lowered
// again, and a graph whose launches are those of the last time is recorded and then replayed.
#include "graph.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <unordered_map>
#include <vector>

#include "fusion.h"
#include "ggml-impl.h"
#include "operations.h"

namespace lathe_ggml {
namespace {

constexpr std::size_t kMostArguments = 6;
constexpr std::size_t kMostRecorded = 8;

struct BoundStep {
  const lathe_kernel* kernel;
  std::vector<Argument> arguments;
};
struct BoundSteps {
  std::vector<BoundStep> list;
  std::int64_t scratch_bytes = 0;
};

// No padding: compared by its bytes.
struct Launch {
  const lathe_kernel* kernel = nullptr;
  std::uint64_t count = 0;
  std::uint64_t arguments[kMostArguments] = {};
};
using Launches = std::vector<Launch>;

bool same(const Launches& a, const Launches& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Launch)) == 0;
}

struct Recorded {
  Launches launches;
  CUgraphExec_st* executable = nullptr;
};

// Everything of an operation that its steps depend on.
void describe(const ggml_tensor* op, std::string& text) {
  const auto add = [&](const auto& value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto add_tensor = [&](const ggml_tensor* t) {
    add(t->type);
    add(t->ne);
    add(t->nb);
    add(t->view_offs);
  };
  add(op->op);
  add(op->op_params);
  add_tensor(op);
  for (int i = 0; i < GGML_MAX_SRC; ++i) {
    if (!op->src[i]) continue;
    add(i);
    add_tensor(op->src[i]);
  }
}

}  // namespace

struct GraphRunner::State {
  explicit State(Device* used) : device(used) {}

  Device* device;
  bool recording = true;
  std::string description;  // of one operation; kept for its memory
  std::unordered_map<std::string, BoundSteps> seen;
  std::list<Recorded> recorded;  // the last used first
  Launches launches;

  const BoundSteps* steps_of(const ggml_tensor* first, const ggml_tensor* op);
  bool collect(ggml_cgraph* graph);
  bool launch_all();
  CUgraphExec_st* record();
  bool launch();
};

// Of an operation, or of a pair, where there is a first.
const BoundSteps* GraphRunner::State::steps_of(const ggml_tensor* first, const ggml_tensor* op) {
  description.clear();
  if (first) describe(first, description);
  describe(op, description);
  const auto known = seen.find(description);
  if (known != seen.end()) return &known->second;
  if (const char* reason = first ? nullptr : refusal(op)) {
    GGML_LOG_ERROR("lathe: %s of %s: %s is not supported\n", ggml_op_name(op->op), op->name,
                   reason);
    return nullptr;
  }
  Steps steps = first ? lower_pair(first, op) : lower(op);
  BoundSteps bound;
  bound.scratch_bytes = steps.scratch_bytes;
  for (Step& step : steps.list) {
    const lathe_kernel* kernel = device->kernel(step);
    if (!kernel) return nullptr;
    if (step.key.empty()) step.arguments.resize(kMostArguments);  // the others are the result
    bound.list.push_back({kernel, std::move(step.arguments)});
  }
  return &seen.emplace(description, std::move(bound)).first->second;
}

// The launches of a graph, with every kernel loaded.
bool GraphRunner::State::collect(ggml_cgraph* graph) {
  launches.clear();
  std::int64_t scratch_bytes = 0;
  struct Work {
    const ggml_tensor *first, *op;
    const BoundSteps* steps;
  };
  std::vector<Work> work;
  for (int i = 0; i < graph->n_nodes; ++i) {
    const ggml_tensor* op = graph->nodes[i];
    if (is_free(op) || !(op->flags & GGML_TENSOR_FLAG_COMPUTE)) continue;
    const ggml_tensor* first = nullptr;
    if (is_pair(graph, i)) {
      first = op;
      op = graph->nodes[++i];
    }
    const BoundSteps* steps = steps_of(first, op);
    if (!steps) return false;
    scratch_bytes = std::max(scratch_bytes, steps->scratch_bytes);
    work.push_back({first, op, steps});
  }
  const std::uint64_t scratch = device->scratch(scratch_bytes);
  if (scratch_bytes > 0 && scratch == 0) return false;
  for (const auto& [first, op, steps] : work)
    for (const BoundStep& step : steps->list) {
      Launch& launch = launches.emplace_back();
      launch.kernel = step.kernel;
      for (const Argument& argument : step.arguments) {
        std::uint64_t base = scratch;
        if (argument.place == Place::result)
          base = reinterpret_cast<std::uint64_t>(op->data);
        else if (argument.place == Place::operand)
          base = reinterpret_cast<std::uint64_t>((argument.operand < kOfFirst
                                                      ? op->src[argument.operand]
                                                      : first->src[argument.operand - kOfFirst])
                                                     ->data);
        launch.arguments[launch.count++] = base + static_cast<std::uint64_t>(argument.offset);
      }
    }
  return true;
}

bool GraphRunner::State::launch_all() {
  for (const Launch& launch : launches) {
    if (lathe_kernel_launch(launch.kernel, launch.arguments,
                            static_cast<std::int32_t>(launch.count), device->stream()) == LATHE_OK)
      continue;
    lathe_kernel_info info = {};
    info.struct_size = sizeof info;
    const bool named = lathe_kernel_get_info(launch.kernel, &info) == LATHE_OK;
    log_last_error(named ? info.name : "a launch");
    return false;
  }
  return true;
}

// Null where the driver does not take the recording, which is then given up for good.
CUgraphExec_st* GraphRunner::State::record() {
  const Driver& d = *driver();
  constexpr int kThreadLocal = 1;
  CUgraph_st* graph = nullptr;
  CUgraphExec_st* executable = nullptr;
  if (driver_did(d.begin_capture(device->stream(), kThreadLocal), "recording a graph")) {
    const bool launched = launch_all();
    const bool ended =
        driver_did(d.end_capture(device->stream(), &graph), "recording a graph") && graph;
    if (!launched || !ended ||
        !driver_did(d.instantiate(&executable, graph, 0), "instantiating a graph"))
      executable = nullptr;
    if (graph) d.destroy_graph(graph);
  }
  if (!executable) recording = false;
  return executable;
}

bool GraphRunner::State::launch() {
  if (!recording || launches.size() < 2) return launch_all();
  for (auto known = recorded.begin(); known != recorded.end(); ++known) {
    if (!same(known->launches, launches)) continue;
    recorded.splice(recorded.begin(), recorded, known);
    if (!known->executable) known->executable = record();
    if (!known->executable) return launch_all();
    return driver_did(driver()->launch_graph(known->executable, device->stream()),
                      "launching a graph");
  }
  recorded.push_front({launches, nullptr});
  if (recorded.size() > kMostRecorded) {
    if (recorded.back().executable) driver()->destroy_executable(recorded.back().executable);
    recorded.pop_back();
  }
  return launch_all();
}

GraphRunner::GraphRunner(Device* device) : state_(new State(device)) {}

GraphRunner::~GraphRunner() {
  const std::lock_guard lock(state_->device->mutex());
  const ContextScope scope(state_->device->context());
  for (const Recorded& recorded : state_->recorded)
    if (recorded.executable) driver()->destroy_executable(recorded.executable);
}

ggml_status GraphRunner::run(ggml_cgraph* graph) {
  const std::lock_guard lock(state_->device->mutex());
  const ContextScope scope(state_->device->context());
  return state_->collect(graph) && state_->launch() ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

}  // namespace lathe_ggml
