// Owns decoding: a model file, a plan and an executor behind one object that turns a token into
// logits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/emit.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/sampling.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/choice.h"
#include "lathe/runtime/device.h"
#include "lathe/runtime/kv.h"

namespace lathe {

enum class ExecutorKind : std::uint8_t {
  eager,      // one launch per step
  graph,      // the same launches recorded once and replayed
  mega,       // one persistent kernel for whole tokens; needs a plan with Fusion::full, and NVRTC
  cpu,        // the oracles, multi-threaded: any plan runs with no GPU
  automatic,  // mega where it applies, else graph; the report has which, and in its notes why
};
const char* executor_name(ExecutorKind kind);
Result<ExecutorKind> executor_by_name(std::string_view name);

// Where a weight lies on the device already: asked once for each that a plan reads, on the thread
// that opens a session. Returns the address, in the session's context, of the tensor's `bytes` in
// the layout asked for: as the file has them (raw), aligned to 16 bytes, or in tiles
// (lathe/codegen/tile.h), aligned to 256; 0: nowhere. It stays the caller's, who keeps it there as
// long as the session; what wrote it is over, or stands on the session's stream.
using DeviceWeights =
    std::function<std::uint64_t(std::string_view tensor, Layout layout, std::int64_t bytes)>;

struct SessionOptions {
  ExecutorKind executor = ExecutorKind::graph;
  PlanOptions plan = {};
  std::vector<Route> routes = {};  // order of preference; empty = the default order
  CompilerPaths compilers = {};
  bool disk_cache = true;
  std::string cache_directory = {};  // empty: LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe, ~/.cache/lathe
  bool cache_read_only = false;      // takes what is there and writes nothing
  std::int64_t cache_cap_bytes = 0;  // 0: LATHE_CACHE_CAP, else 512 MiB
  LogHook log = {};                  // empty: LATHE_LOG, else nothing
  std::string dump_directory = {};   // for PTX and cubins of what is built; empty: LATHE_DUMP
  // Kernels shared with other sessions. Given, it replaces device, context, routes, compilers, log,
  // dump and the cache options; null = the session opens a device of its own.
  std::shared_ptr<Device> kernels = {};
  int threads = 0;                // cpu executor; 0 = all cores
  int device = 0;                 // ordinal, when no context is given
  CUctx_st* context = nullptr;    // borrowed; null = the device's primary context is retained
  CUstream_st* stream = nullptr;  // the caller's; null = the session makes one of its own
  // How long the GPU may work without choosing a token before a call that waits for it gives the
  // context up with an error: between once and twice this. 0: LATHE_WAIT_LIMIT, else 5 minutes;
  // below 0: for ever.
  std::chrono::milliseconds wait_limit = {};
  // A weight that the plan has in tiles is asked for in tiles, then raw, of which the session makes
  // tiles of its own on the device. What is nowhere is uploaded from the file. Not for executor
  // cpu.
  DeviceWeights device_weights = {};
  Progress progress = {};
  // eager and cpu: the time of each step is kept, for Session::step_times().
  bool time_steps = false;
  // Above 0: the session is held to the oracles before it is handed out. It and the cpu executor
  // take the same few tokens, and what comes out must have at least this cosine, up to 1; else
  // Code::internal with both figures. Takes the CPU a pass of the whole model for each token.
  double parity = 0;
  // Asked after each kernel and each weight while the session opens: true ends it, Code::cancelled,
  // when the kernels under way, which are built on threads of their own, have come out of the
  // compiler.
  std::function<bool()> cancelled = {};
};

// Those of the device that a session with these options opens where they share no kernels.
DeviceOptions device_options(const SessionOptions& options);

// What ran and where it came from. No fallback is silent: it stands here.
struct SessionReport {
  std::string device;  // "NVIDIA H200, sm_90a, driver 13.0" or "CPU, 2 threads"
  std::string executor;
  std::string routes;  // "llvm 14 kernels" ...; refusals of routes tried before are in notes
  std::string assembler;
  int kernels_built = 0;
  int kernels_from_cache = 0;
  CacheCounts cache;  // of the device, up to the end of open()
  // From the beginning until the last kernel is built and loaded; of that, how long the opening did
  // nothing else. The rest is part of upload_seconds too: most kernels are built meanwhile.
  double build_seconds = 0;
  double build_wait_seconds = 0;
  double upload_seconds = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t borrowed_bytes = 0;  // of those, read where the caller's device_weights has them
  std::int64_t kv_bytes = 0;
  int kv_pages = 0;       // of a batch's KV cache in pages, in all; 0: positions are in a row
  int kv_pages_used = 0;  // of those; the others are free
  std::int64_t scratch_bytes = 0;
  int chunk = 0;  // tokens of a prompt read at once; 0: they are read one by one
  int context = 0;
  // Of a token that step() decodes and sampled() reads: kernels, calls of the driver that launch
  // them, bytes that go to the GPU and bytes that come back. 0 where there is no GPU. A part that
  // ends with a hidden state brings that back.
  int launches = 0;
  int submissions = 0;
  std::int64_t bytes_to_device = 0;
  std::int64_t bytes_to_host = 0;
  // 16 hexadecimal digits of the plan's kernels and where their operands are: plans with the same
  // record the same graph.
  std::string graph_key;
  std::string tuning;  // "132 blocks of 8 warps, 4 tiles ahead, attention in 16 splits"
  double parity = 0;   // the cosine, where SessionOptions::parity asked for it
  std::vector<std::string> notes;
  std::vector<Selected> choices;  // executor, plan, tuning of kernels: what was taken, and why
};

enum class HiddenState : std::uint8_t {
  stream,  // the residual stream after the last layer
  normed,  // the same after the output norm: what the head multiplies
};

// Of a submission without work and the wait for its end, in microseconds.
struct RoundTrip {
  double least = 0;
  double median = 0;
};

// One sequence at batch 1. Not thread-safe: one thread at a time; different sessions are
// independent. Calls order their work on the session's stream.
class Session {
 public:
  // Builds, loads and uploads everything. Afterwards step() allocates nothing.
  static Result<std::unique_ptr<Session>> open(std::shared_ptr<const GgufFile> file,
                                               const SessionOptions& options);
  // What open() would choose: no kernel is built, no weight uploaded. Opens the device where the
  // options have none. Whether a persistent kernel can be loaded, and does not leave the session to
  // the graph executor, shows in open() alone.
  static Result<std::vector<Selected>> explain(const GgufFile& file, const SessionOptions& options);
  // Waits for the work on its stream, but not for a hung one, nor while the stream is captured: the
  // work must then be over already.
  virtual ~Session() = default;

  virtual const Plan& plan() const = 0;
  virtual const SessionReport& report() const = 0;
  // Tokens in the KV cache.
  virtual int length() const = 0;

  // Decodes one token at position length(). Asynchronous on a GPU. Errors before any launch:
  // out_of_range when the token is not in the vocabulary or the context is full.
  virtual Result<void> step(std::int32_t token) = 0;
  // The same of a plan that takes hidden states (ModelPart::input), which step() and whatever else
  // takes tokens refuses: `state` has as many values as the model's residual stream, and is free
  // when this returns. `token`: what counts as recent in its place (Sampling::repeat_penalty); -1:
  // nothing does.
  virtual Result<void> step_hidden(std::span<const float> state, std::int32_t token = -1) = 0;
  // Takes the tokens of a prompt: all but the last in chunks, where the report has their size, then
  // the last one as step() does. All are checked before the first is launched. What chunks leave in
  // the KV cache differs from what steps leave by roundings of f16.
  virtual Result<void> feed(std::span<const std::int32_t> tokens) = 0;
  // Decodes `token` and then, each time, the token that was chosen: tokens[i] is what sampled()
  // would say after step i. Faster than steps, for the device does not wait for the host in
  // between. Waits for the end. A -1 (see sampled) makes what follows it meaningless.
  Result<void> generate(std::int32_t token, std::span<std::int32_t> tokens);
  // The same until one of `stops` was chosen, at most 8 ids, which is then the last token: returns
  // how many there are. The mega executor ends there; the others may decode some more, which is
  // forgotten. `each`, if given, is called with every token as soon as the device has chosen it, on
  // the calling thread, while later ones are being decoded; what it throws comes out when the run
  // has ended, and the run counts. After an early end there are no logits() until the next step.
  virtual Result<int> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                                     std::span<const std::int32_t> stops,
                                     const std::function<void(std::int32_t)>& each) = 0;
  // The same, asked every few tokens: once `cancelled` says true no more are decoded, and those
  // that were chosen so far are the tokens. A run in pieces, which for mega and graph costs a
  // little.
  Result<int> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                             std::span<const std::int32_t> stops,
                             const std::function<void(std::int32_t)>& each,
                             const std::function<bool()>& cancelled);
  // Waits for the last step. The token chosen after it: the greatest logit's id (ties to the lower
  // id, NaN never wins), or what set_sampling() says; -1 when every logit is NaN.
  virtual Result<std::int32_t> sampled() = 0;
  // Waits for the last step. vocab values; valid until the next step.
  virtual Result<std::span<const float>> logits() = 0;
  // Waits for the last step. Its logits from id `first` on, as many as `to` has.
  virtual Result<void> read_logits(int first, std::span<float> to) = 0;
  // Waits for the last step, or for the last token of a run that was not ended early. `to` has as
  // many values as the residual stream. With mega a value's lowest bit is not its own. The host
  // does the norm.
  virtual Result<void> read_hidden(HiddenState which, std::span<float> to) = 0;
  // What sampled() would say if only these tokens were there, by the rules that hold now and the
  // step's own draw; -1: none of them can be chosen. Of the last step, where no rollback came after
  // it. The host chooses, from all logits: it waits, and takes longer than the device.
  virtual Result<std::int32_t> choose(TokenSet allowed) = 0;
  // generate_until() whose tokens are chosen by choose(), among those that `constraint` allows. It
  // is asked before each choice, while the device decodes. A -1 ends the run and is its last token:
  // nothing was allowed. sampled() goes on saying what would have been chosen without it.
  virtual Result<int> generate_constrained(std::int32_t token, std::span<std::int32_t> tokens,
                                           std::span<const std::int32_t> stops,
                                           const Constraint& constraint,
                                           const std::function<void(std::int32_t)>& each = {},
                                           const std::function<bool()>& cancelled = {}) = 0;
  // How the steps from the next one on choose a token; a session starts with Sampling{}. The same
  // logits, tokens and seed give the same choice with every executor. invalid_argument: a sentence
  // that names the first value that makes no sense.
  virtual Result<void> set_sampling(const Sampling& sampling) = 0;
  // Forgets all positions from `length` on.
  virtual Result<void> rollback(int length) = 0;
  // Forgets all positions and the last step's logits, and clears the KV cache. The memory stays: a
  // session takes what its whole context needs when it opens, and gives it back when it goes.
  virtual Result<void> reset() = 0;

  // Keys and values (docs/services.md): of positions that are there, and all of these calls wait.
  virtual Result<void> read_kv(const KvRange& range, std::span<float> values) = 0;
  // Rounds to the cache's format. The steps from the next one on attend to what was written.
  virtual Result<void> write_kv(const KvRange& range, std::span<const float> values) = 0;
  // Of the first `positions`, at most `most` keys and as many values of each layer.
  virtual Result<KvCapture> capture_kv(int positions, int most) = 0;
  virtual Result<KvSnapshot> snapshot(int length) = 0;
  // Puts a snapshot in place of all positions; there are no logits until the next step. It may be
  // another session's, or a batch's, of the same model and KV format; else invalid_argument, and
  // nothing changes. A failure on the way leaves no positions.
  virtual Result<void> restore(const KvSnapshot& snapshot) = 0;

  // For a caller with a graph of its own, on its own stream (SessionOptions::stream). Adds one
  // token to the graph that is being captured from that stream: each replay decodes the token that
  // the one before chose, by the rules of sampling that then hold. Waits for nothing, and asks the
  // host for nothing: everything else that a session does is refused while its stream is captured.
  virtual Result<void> record_step();
  // The next replays begin with `token` at position length(). Waits for the steps before. More
  // replays than the context has room for decode its last position again and again.
  virtual Result<void> begin_replays(std::int32_t token);
  // Waits for the stream and takes what so many replays have chosen since the replays began, or
  // since the last that were taken: tokens[i] is what sampled() would say after replay i, and
  // length() grows as if they had been steps. invalid_argument, and nothing taken, where fewer ran,
  // or another text has taken the place of theirs. Replays have no logits() nor sampled() until all
  // that ran are taken.
  virtual Result<void> take_replays(std::span<std::int32_t> tokens);
  // With SessionOptions::time_steps: waits, and returns the microseconds that each of plan().steps
  // took in the last step, by the GPU's clock or the CPU's. Each is a launch of its own; one that
  // is shorter than the host takes for a launch, some microseconds, counts for as much.
  virtual Result<std::vector<double>> step_times() = 0;
  // Submits nothing and waits for it, so many times, 1 to 100000, after the steps before. 0 for the
  // cpu executor.
  virtual Result<RoundTrip> submit_round_trip(int times) = 0;
  // Bytes per second that a plain read kernel reaches on this device; 0 for the cpu executor.
  // Measured on the first call, which takes about 0.1 s and some scratch memory.
  virtual Result<double> read_rate() = 0;
};

}  // namespace lathe
