// Owns the graph executor: the launches of a token as one CUDA graph.
//
// The graph is built node by node, not captured from a stream: capture would forbid other threads
// of the process calls that are none of our business, and would fail on a caller's legacy stream.
#include <algorithm>

#include "runtime/device_memory.h"
#include "runtime/executor.h"

namespace lathe {
namespace {

struct GraphTraits {
  using Value = CUgraph;
  static void destroy(const Context& context, Value value) {
    context.driver().cuGraphDestroy(value);
  }
};
struct GraphExecTraits {
  using Value = CUgraphExec;
  static void destroy(const Context& context, Value value) {
    context.driver().cuGraphExecDestroy(value);
  }
};

// Whether the steps may be launched before those that they wait for have ended. All of them or
// none: in a graph of early launches a last kernel that did not wait by itself has been seen to
// begin early too, though its own edge was a full one.
bool begin_early(const Driver& driver, const std::vector<PreparedStep>& steps) {
  return driver.cuGraphAddDependencies_v2 &&
         std::ranges::all_of(steps, [](const PreparedStep& step) { return step.kernel->waits; });
}

class GraphExecutor final : public Executor {
 public:
  GraphExecutor(const Context& context, DriverHandle<GraphExecTraits> graph,
                std::vector<PreparedStep> steps)
      : driver_(context.driver()),
        graph_(std::move(graph)),
        launches_(eager_executor(context, std::move(steps))) {}

  Result<void> launch(CUstream stream, int tokens) override {
    for (int i = 0; i < tokens; ++i)
      LATHE_TRY(
          lathe::check(driver_, driver_.cuGraphLaunch(graph_.get(), stream), "cuGraphLaunch"));
    return {};
  }

  // One by one: not every driver takes the launch of a graph into another.
  Result<void> record(CUstream stream) override { return launches_->record(stream); }

  std::string text() const override { return "a graph of " + launches_->text(); }

 private:
  const Driver& driver_;
  DriverHandle<GraphExecTraits> graph_;
  const std::unique_ptr<Executor> launches_;
};

}  // namespace

std::vector<int> unawaited(const std::vector<std::vector<int>>& dependencies) {
  std::vector<bool> awaited(dependencies.size());
  for (const std::vector<int>& steps : dependencies)
    for (int step : steps) awaited[std::size_t(step)] = true;
  std::vector<int> out;
  for (std::size_t i = 0; i < awaited.size(); ++i)
    if (!awaited[i]) out.push_back(int(i));
  return out;
}

Result<std::unique_ptr<Executor>> graph_executor(const Context& context,
                                                 const std::vector<PreparedStep>& steps,
                                                 const std::vector<std::vector<int>>& dependencies,
                                                 CUstream stream) {
  const Driver& driver = context.driver();
  CUgraph raw_graph = nullptr;
  LATHE_DRIVER_CALL(driver, cuGraphCreate, &raw_graph, 0);
  const DriverHandle<GraphTraits> graph(context, raw_graph);

  const bool early = begin_early(driver, steps);
  std::vector<CUgraphNode> nodes;
  for (const PreparedStep& step : steps) {
    std::vector<CUgraphNode> before;
    for (int index : dependencies[nodes.size()])
      before.push_back(nodes[static_cast<std::size_t>(index)]);
    const Geometry& geometry = step.kernel->info.geometry;
    CUDA_KERNEL_NODE_PARAMS node = {};
    node.func = step.kernel->function;
    node.gridDimX = geometry.grid_x;
    node.gridDimY = geometry.grid_y;
    node.gridDimZ = 1;
    node.blockDimX = geometry.threads;
    node.blockDimY = 1;
    node.blockDimZ = 1;
    node.sharedMemBytes = geometry.shared_bytes;
    node.kernelParams = step.parameters;  // copied into the node
    CUgraphNode added = nullptr;
    LATHE_DRIVER_CALL(driver, cuGraphAddKernelNode, &added, graph.get(), before.data(),
                      early ? 0 : before.size(), &node);
    nodes.push_back(added);
    if (!early || before.empty()) continue;
    const std::vector<CUgraphNode> to(before.size(), added);
    const std::vector<GraphEdge> edges(before.size(), kEarlyEdge);
    LATHE_DRIVER_CALL(driver, cuGraphAddDependencies_v2, graph.get(), before.data(), to.data(),
                      edges.data(), edges.size());
  }
  CUgraphExec executable = nullptr;
  LATHE_DRIVER_CALL(driver, cuGraphInstantiateWithFlags, &executable, graph.get(), 0);
  DriverHandle<GraphExecTraits> owned(context, executable);
  // So that the first token does not pay for it.
  LATHE_DRIVER_CALL(driver, cuGraphUpload, executable, stream);
  return std::unique_ptr<Executor>(
      std::make_unique<GraphExecutor>(context, std::move(owned), steps));
}

}  // namespace lathe
