// Owns the graph executor: the launches of a token as one CUDA graph.
//
// The graph is built node by node, not captured from a stream: capture would forbid other threads
// of the process calls that are none of our business, and would fail on a caller's legacy stream.
//
// A kernel that waits on its own for what is before it is launched while that still runs. No wait
// is lost by it: each kernel ends after its predecessors, since it waits for them, or the edges to
// it are full ones.
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

// Of kernel nodes: CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.
constexpr GraphEdge kProgrammatic = {1, 0, 1, {}};

Result<void> add_edges(const Driver& driver, CUgraph graph, const std::vector<CUgraphNode>& nodes,
                       const std::vector<PreparedStep>& steps,
                       const std::vector<std::vector<int>>& dependencies) {
  std::vector<CUgraphNode> from, to;
  std::vector<GraphEdge> edges;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (int index : dependencies[i]) {
      from.push_back(nodes[std::size_t(index)]);
      to.push_back(nodes[i]);
      edges.push_back(steps[i].kernel->info.programmatic ? kProgrammatic : GraphEdge{});
    }
  }
  LATHE_DRIVER_CALL(driver, cuGraphAddDependencies_v2, graph, from.data(), to.data(), edges.data(),
                    edges.size());
  return {};
}

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

  const bool kinds_of_edges = driver.cuGraphAddDependencies_v2 != nullptr;
  std::vector<CUgraphNode> nodes;
  for (const PreparedStep& step : steps) {
    std::vector<CUgraphNode> before;
    if (!kinds_of_edges)
      for (int index : dependencies[nodes.size()]) before.push_back(nodes[std::size_t(index)]);
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
                      before.size(), &node);
    nodes.push_back(added);
  }
  if (kinds_of_edges) LATHE_TRY(add_edges(driver, graph.get(), nodes, steps, dependencies));
  CUgraphExec executable = nullptr;
  LATHE_DRIVER_CALL(driver, cuGraphInstantiateWithFlags, &executable, graph.get(), 0);
  DriverHandle<GraphExecTraits> owned(context, executable);
  // So that the first token does not pay for it.
  LATHE_DRIVER_CALL(driver, cuGraphUpload, executable, stream);
  return std::unique_ptr<Executor>(
      std::make_unique<GraphExecutor>(context, std::move(owned), steps));
}

}  // namespace lathe
