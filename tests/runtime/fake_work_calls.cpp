// Owns the fake driver's calls about streams, events, libraries, launches and graphs.
#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/runtime/fake_state.h"

namespace lathe::testing {
namespace {

CUresult fake_stream_create(CUstream* stream, unsigned) {
  FAKE_ENTER("cuStreamCreate");
  auto* made = new FakeStream;
  std::lock_guard lock(g_state->mutex);
  g_state->streams.insert(made);
  *stream = reinterpret_cast<CUstream>(made);
  return CUDA_SUCCESS;
}
CUresult fake_stream_destroy(CUstream stream) {
  const CUresult status = enter("cuStreamDestroy");
  auto* gone = reinterpret_cast<FakeStream*>(stream);
  finish(*gone, "cuStreamDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->streams.erase(gone) == 0) violation("cuStreamDestroy of what is no stream");
  delete gone;
  return status;
}
CUresult fake_stream_synchronize(CUstream stream) {
  const CUresult status = enter("cuStreamSynchronize");
  refuse_capture(stream, "cuStreamSynchronize");
  finish(stream_of(stream), "cuStreamSynchronize");
  return status;
}
CUresult fake_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_ENTER("cuStreamIsCapturing");
  *status =
      stream_of(stream).capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult fake_stream_query(CUstream stream) {
  const CUresult status = enter("cuStreamQuery");
  refuse_capture(stream, "cuStreamQuery");
  std::lock_guard lock(g_state->mutex);
  FakeStream& of = stream_of(stream);
  const FakeDriver::Pace pace = g_state->pace;
  if (status != CUDA_SUCCESS || of.queue.empty()) return status;
  if (pace == FakeDriver::Pace::prompt) {
    drain(of);
    return status;
  }
  if (pace == FakeDriver::Pace::slow) {
    const auto work = std::move(of.queue.front());
    of.queue.pop_front();
    std::this_thread::sleep_for(g_state->of_each_thing);
    work();
  }
  return CUDA_ERROR_NOT_READY;
}
CUresult fake_write_value(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned) {
  FAKE_ENTER("cuStreamWriteValue64");
  refuse_capture(stream, "cuStreamWriteValue64");
  check_range(to, sizeof value, "cuStreamWriteValue64");
  if (to % 8 != 0) violation("cuStreamWriteValue64 is misaligned");
  {
    std::lock_guard lock(g_state->mutex);
    g_state->bytes_to_device += std::int64_t(sizeof value);
  }
  if (g_state->options.execute) {
    put(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), &value, sizeof value); });
  }
  return CUDA_SUCCESS;
}
CUresult fake_event_create(CUevent* event, unsigned) {
  FAKE_ENTER("cuEventCreate");
  void* made = new FakeStream*(nullptr);
  std::lock_guard lock(g_state->mutex);
  g_state->events.insert(made);
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}
CUresult fake_event_destroy(CUevent event) {
  const CUresult status = enter("cuEventDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->events.erase(event) == 0) violation("cuEventDestroy of what is no event");
  delete reinterpret_cast<FakeStream**>(event);
  return status;
}
CUresult fake_event_record(CUevent event, CUstream stream) {
  FAKE_ENTER("cuEventRecord");
  *reinterpret_cast<FakeStream**>(event) = &stream_of(stream);
  return CUDA_SUCCESS;
}
CUresult fake_event_synchronize(CUevent event) {
  const CUresult status = enter("cuEventSynchronize");
  if (FakeStream* stream = *reinterpret_cast<FakeStream**>(event))
    finish(*stream, "cuEventSynchronize");
  return status;
}
CUresult fake_event_elapsed(float* milliseconds, CUevent, CUevent) {
  FAKE_ENTER("cuEventElapsedTime");
  *milliseconds = 2.0f;
  return CUDA_SUCCESS;
}
CUresult fake_library_load(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  FAKE_ENTER("cuLibraryLoadData");
  // Like a cubin, an image says itself how long it is: up to a terminating null.
  const char* image = static_cast<const char*>(code);
  if (std::strncmp(image, kImageMark, sizeof kImageMark - 1) != 0) return CUDA_ERROR_INVALID_IMAGE;
  auto* made = new FakeLibrary;
  made->text = image + sizeof kImageMark - 1;
  if (auto key = parse_key(made->text)) {
    made->parsed = true;
    made->key = key.value();
    made->arguments = row(made->key.type).params(made->key).size();
  }
  if (made->text.find(".entry lathe_advance") != std::string::npos) {
    const std::size_t wait = made->text.find("griddepcontrol.wait");
    made->advance = true;
    made->waits = wait < std::min(made->text.find("ld.global"), made->text.find("st.global"));
    made->arguments = 3;
  }
  if (made->text.starts_with(kCustomMark)) {
    made->custom = true;
    made->arguments = 3;
  }
  made->persistent = made->text.starts_with(kPersistentMark);
  std::lock_guard lock(g_state->mutex);
  g_state->libraries.insert(made);
  *library = reinterpret_cast<CUlibrary>(made);
  return CUDA_SUCCESS;
}
CUresult fake_library_unload(CUlibrary library) {
  const CUresult status = enter("cuLibraryUnload");
  auto* gone = reinterpret_cast<FakeLibrary*>(library);
  std::lock_guard lock(g_state->mutex);
  if (g_state->libraries.erase(gone) == 0) violation("cuLibraryUnload of what is no library");
  delete gone;
  return status;
}
CUresult fake_library_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  FAKE_ENTER("cuLibraryGetKernel");
  const auto* from = reinterpret_cast<FakeLibrary*>(library);
  if (from->parsed && from->key.symbol() != name) return CUDA_ERROR_NOT_FOUND;
  if (from->custom && from->text.find(name) == std::string::npos) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(library);
  return CUDA_SUCCESS;
}
CUresult fake_kernel_function(CUfunction* function, CUkernel kernel) {
  FAKE_ENTER("cuKernelGetFunction");
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult fake_kernel_attribute(int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
  FAKE_ENTER("cuKernelGetAttribute");
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult fake_set_attribute(CUfunction_attribute, int, CUkernel, CUdevice) {
  FAKE_ENTER("cuKernelSetAttribute");
  return CUDA_SUCCESS;
}
CUresult fake_launch(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, unsigned, CUstream stream, void** parameters, void**) {
  FAKE_ENTER("cuLaunchKernel");
  if (!g_state->options.execute) return CUDA_SUCCESS;
  put(stream, [launch = make_launch(function, parameters)] { run(launch); });
  return CUDA_SUCCESS;
}
CUresult fake_cooperative_launch(CUfunction function, unsigned blocks, unsigned, unsigned,
                                 unsigned threads, unsigned, unsigned, unsigned shared_bytes,
                                 CUstream stream, void** parameters) {
  FAKE_ENTER("cuLaunchCooperativeKernel");
  const FakeOptions& options = g_state->options;
  const FakeLibrary& library = *reinterpret_cast<FakeLibrary*>(function);
  if (!library.persistent)
    violation("cuLaunchCooperativeKernel of a kernel that is not persistent");
  if (static_cast<int>(blocks) > options.multiprocessors * options.blocks_per_multiprocessor)
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  std::lock_guard lock(g_state->mutex);
  CooperativeLaunch& launch =
      g_state->cooperative ? *g_state->cooperative : g_state->cooperative.emplace();
  launch.blocks = blocks;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  launch.pointers.resize(8);
  for (std::size_t i = 0; i < 8; ++i)
    launch.pointers[i] = *static_cast<std::uint64_t*>(parameters[i]);
  launch.tokens = *static_cast<int*>(parameters[8]);
  launch.chooses = *static_cast<int*>(parameters[9]);
  if (options.execute && options.run_persistent) {
    put(stream, [copy = launch, &library]() mutable {
      std::vector<void*> arguments;
      for (std::uint64_t& pointer : copy.pointers) arguments.push_back(&pointer);
      arguments.push_back(&copy.tokens);
      arguments.push_back(&copy.chooses);
      const Result<void> ran = g_state->options.run_persistent(
          library.text.substr(sizeof kPersistentMark - 1), arguments);
      if (!ran) violation(ran.error().text());
    });
  }
  return CUDA_SUCCESS;
}
CUresult fake_occupancy(int* blocks, CUfunction, int, std::size_t) {
  FAKE_ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = g_state->options.blocks_per_multiprocessor;
  return CUDA_SUCCESS;
}
CUresult fake_graph_create(CUgraph* graph, unsigned) {
  FAKE_ENTER("cuGraphCreate");
  auto* made = new FakeGraph;
  std::lock_guard lock(g_state->mutex);
  g_state->graphs.insert(made);
  *graph = reinterpret_cast<CUgraph>(made);
  return CUDA_SUCCESS;
}
CUresult fake_graph_destroy(CUgraph graph) {
  const CUresult status = enter("cuGraphDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->graphs.erase(reinterpret_cast<FakeGraph*>(graph)) == 0) {
    violation("cuGraphDestroy of what is no graph");
  }
  delete reinterpret_cast<FakeGraph*>(graph);
  return status;
}
// The number of a node; a violation, and one past the last, where the graph has no such node.
std::size_t node_of(const FakeGraph& graph, CUgraphNode node) {
  const auto same = [&](const FakeLaunch& launch) {
    return static_cast<const void*>(&launch) == static_cast<const void*>(node);
  };
  const auto found = std::ranges::find_if(graph.nodes, same);
  if (found == graph.nodes.end()) violation("a node waits for what is no node of its graph");
  return static_cast<std::size_t>(found - graph.nodes.begin());
}
CUresult fake_graph_add(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_ENTER("cuGraphAddKernelNode");
  auto* to = reinterpret_cast<FakeGraph*>(graph);
  std::vector<std::size_t> waits_for;
  for (std::size_t i = 0; i < count; ++i) waits_for.push_back(node_of(*to, dependencies[i]));
  to->waits_for.push_back(std::move(waits_for));
  to->nodes.push_back(make_launch(params->func, params->kernelParams));
  *node = reinterpret_cast<CUgraphNode>(&to->nodes.back());
  return CUDA_SUCCESS;
}
CUresult fake_graph_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                          const GraphEdge* edges, std::size_t count) {
  FAKE_ENTER("cuGraphAddDependencies_v2");
  auto* of = reinterpret_cast<FakeGraph*>(graph);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t before = node_of(*of, from[i]), after = node_of(*of, to[i]);
    if (before == of->nodes.size() || after == of->nodes.size()) continue;
    of->waits_for[after].push_back(before);
    const bool early = edges[i].from_port == 1 && edges[i].type == 1;
    of->early += early;
    const FakeLibrary& waits = *of->nodes[after].library;
    if (early && !waits.waits && !waits.key.early)
      violation(waits.text + " is launched early and does not wait");
  }
  return CUDA_SUCCESS;
}
CUresult fake_graph_instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  FAKE_ENTER("cuGraphInstantiateWithFlags");
  auto* made = new FakeGraph(*reinterpret_cast<FakeGraph*>(graph));
  std::lock_guard lock(g_state->mutex);
  g_state->executables.insert(made);
  *executable = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}
CUresult fake_executable_destroy(CUgraphExec executable) {
  const CUresult status = enter("cuGraphExecDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->executables.erase(reinterpret_cast<FakeGraph*>(executable)) == 0) {
    violation("cuGraphExecDestroy of what is no executable graph");
  }
  delete reinterpret_cast<FakeGraph*>(executable);
  return status;
}
// As far from the order of the plan as the graph lets it be, so that a dependency left out shows in
// the logits: of the nodes that may run now always the last, or all but the one that is held.
void run_graph(const FakeGraph& graph) {
  const FakeOptions& options = g_state->options;
  std::vector<bool> done(graph.nodes.size());
  const auto ready = [&](std::size_t i) {
    return !done[i] && std::ranges::all_of(graph.waits_for[i], [&](std::size_t j) {
      return done[j] || options.forgotten_edge == std::pair(j, i);
    });
  };
  const auto next = [&] {
    std::size_t found = graph.nodes.size();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!ready(i)) continue;
      if (options.held_node && i != *options.held_node) return i;
      found = i;
    }
    return found;
  };
  g_state->graph_run = {graph.waits_for, {}, graph.early};
  for (std::size_t run_now = 0; run_now < graph.nodes.size(); ++run_now) {
    const std::size_t i = next();
    run(graph.nodes[i]);
    done[i] = true;
    g_state->graph_run.order.push_back(i);
  }
}
CUresult fake_graph_launch(CUgraphExec executable, CUstream stream) {
  FAKE_ENTER("cuGraphLaunch");
  refuse_capture(stream, "cuGraphLaunch");
  if (!g_state->options.execute) return CUDA_SUCCESS;
  auto* graph = reinterpret_cast<FakeGraph*>(executable);
  put(stream, [graph] { run_graph(*graph); });
  return CUDA_SUCCESS;
}
CUresult fake_graph_upload(CUgraphExec, CUstream) {
  FAKE_ENTER("cuGraphUpload");
  return CUDA_SUCCESS;
}
CUresult fake_link_create(unsigned, CUjit_option*, void**, CUlinkState*) {
  FAKE_ENTER("cuLinkCreate");
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_add(CUlinkState, CUjitInputType, void*, std::size_t, const char*, unsigned,
                       CUjit_option*, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_complete(CUlinkState, void**, std::size_t*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_destroy(CUlinkState) {
  return CUDA_SUCCESS;
}

}  // namespace

void fill_work_calls(Driver& table) {
  table.cuStreamCreate = fake_stream_create;
  table.cuStreamDestroy = fake_stream_destroy;
  table.cuStreamSynchronize = fake_stream_synchronize;
  table.cuStreamQuery = fake_stream_query;
  table.cuStreamIsCapturing = fake_capturing;
  table.cuStreamWriteValue64 = fake_write_value;
  table.cuEventCreate = fake_event_create;
  table.cuEventDestroy = fake_event_destroy;
  table.cuEventRecord = fake_event_record;
  table.cuEventSynchronize = fake_event_synchronize;
  table.cuEventElapsedTime = fake_event_elapsed;
  table.cuLibraryLoadData = fake_library_load;
  table.cuLibraryUnload = fake_library_unload;
  table.cuLibraryGetKernel = fake_library_kernel;
  table.cuKernelGetFunction = fake_kernel_function;
  table.cuKernelGetAttribute = fake_kernel_attribute;
  table.cuKernelSetAttribute = fake_set_attribute;
  table.cuLaunchKernel = fake_launch;
  table.cuLaunchCooperativeKernel = fake_cooperative_launch;
  table.cuOccupancyMaxActiveBlocksPerMultiprocessor = fake_occupancy;
  table.cuGraphCreate = fake_graph_create;
  table.cuGraphDestroy = fake_graph_destroy;
  table.cuGraphAddKernelNode = fake_graph_add;
  table.cuGraphAddDependencies_v2 = fake_graph_edges;
  table.cuGraphInstantiateWithFlags = fake_graph_instantiate;
  table.cuGraphExecDestroy = fake_executable_destroy;
  table.cuGraphLaunch = fake_graph_launch;
  table.cuGraphUpload = fake_graph_upload;
  table.cuLinkCreate = fake_link_create;
  table.cuLinkAddData = fake_link_add;
  table.cuLinkComplete = fake_link_complete;
  table.cuLinkDestroy = fake_link_destroy;
}

}  // namespace lathe::testing
