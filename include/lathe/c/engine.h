// Owns the engine level of the C interface: open a model file and decode it.
//
// lathe/c/base.h has the rules of all functions.
#ifndef LATHE_C_ENGINE_H
#define LATHE_C_ENGINE_H

#include "lathe/c/base.h"
#include "lathe/c/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

// A GGUF or P64 file, mapped and checked. Never changes; any number of threads at once.
typedef struct lathe_model lathe_model;
// One sequence at batch 1. One thread at a time; different sessions are independent.
typedef struct lathe_session lathe_session;

typedef struct lathe_model_info {
  size_t struct_size;
  const char* path;
  const char* architecture;  // "llama"
  const char* name;
  int32_t layers;
  int32_t hidden;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t vocabulary;  // tokens are 0 to vocabulary - 1
  int32_t context;     // positions the model was trained for
  int32_t tensor_count;
} lathe_model_info;

// Which of a P64 file's checksums are computed when it is opened. Later none is.
enum {
  LATHE_INTEGRITY_METADATA = 0,  // all but those of the tensors
  LATHE_INTEGRITY_FULL = 1,      // all: reads the whole file
  LATHE_INTEGRITY_STRUCTURE = 2  // none; offsets, sizes and names are checked always
};

typedef struct lathe_model_options {
  size_t struct_size;
  int32_t integrity;  // LATHE_INTEGRITY_...
  int32_t reserved;   // 0
} lathe_model_options;

// The file must not shrink while the model, or a session of it, is open.
LATHE_API lathe_status lathe_model_open(const char* path, lathe_model** model);
// The same of bytes in memory, which must stay as they are for as long. `name` stands in errors.
LATHE_API lathe_status lathe_model_open_bytes(const void* bytes, size_t byte_count,
                                              const char* name, lathe_model** model);
// The same two with options, which may be NULL.
LATHE_API lathe_status lathe_model_open_with(const char* path, const lathe_model_options* options,
                                             lathe_model** model);
LATHE_API lathe_status lathe_model_adopt(const void* bytes, size_t byte_count, const char* name,
                                         const lathe_model_options* options, lathe_model** model);
LATHE_API lathe_status lathe_model_close(lathe_model* model);
// LATHE_UNSUPPORTED where no model family here reads the file.
LATHE_API lathe_status lathe_model_get_info(const lathe_model* model, lathe_model_info* info);

enum {
  LATHE_EXECUTOR_DEFAULT = 0,  // LATHE_EXECUTOR_GRAPH
  LATHE_EXECUTOR_EAGER = 1,    // a launch per step
  LATHE_EXECUTOR_GRAPH = 2,    // the same launches, recorded once and replayed
  LATHE_EXECUTOR_MEGA = 3,     // one persistent kernel for whole tokens; compute capability 9.0
  LATHE_EXECUTOR_CPU = 4,      // no GPU, slower
  LATHE_EXECUTOR_AUTO = 5      // mega where it applies, else graph: lathe_session_info says which
};

enum {
  LATHE_FUSION_AUTOMATIC = 0,  // full where model and device allow it, else none
  LATHE_FUSION_NONE = 1,       // a kernel for each operation
  LATHE_FUSION_FULL = 2        // five kernels a layer
};

enum {
  LATHE_KV_F32 = 0,
  LATHE_KV_F16 = 1,  // half the memory
  LATHE_KV_Q8_0 = 2  // a quarter; needs LATHE_FUSION_FULL
};

typedef struct lathe_model_report {
  size_t struct_size;
  const char* container;  // "GGUF" or "P64"
  int32_t version;
  int32_t decodes;  // 0: lathe_session_open would say why not
  int64_t file_bytes;
  int64_t data_offset;  // where tensors begin; 0 for P64, whose offsets are the file's
  int64_t tensor_bytes;
  const char* largest_tensor;
  int64_t largest_tensor_bytes;
  int64_t kv_bytes;  // of a KV cache for `context` positions
  int32_t context;
  int32_t layers;  // these are 0 where no model family here reads the file
  int32_t heads;
  int32_t kv_heads;
} lathe_model_report;

// `context` 0: as a session takes it. `kv_format`: LATHE_KV_...
LATHE_API lathe_status lathe_model_get_report(const lathe_model* model, int32_t context,
                                              int32_t kv_format, lathe_model_report* report);
// Writes a GGUF file's model as P64, and a P64 file's as GGUF; whole or not at all. What is at
// `path` is replaced. A damaged tensor is refused. `progress` may be NULL.
LATHE_API lathe_status lathe_model_convert(const lathe_model* model, const char* path,
                                           lathe_progress progress, void* user);

enum { LATHE_INPUT_TOKEN = 0, LATHE_INPUT_HIDDEN = 1 };
enum { LATHE_OUTPUT_LOGITS = 0, LATHE_OUTPUT_HIDDEN = 1 };
enum { LATHE_BLOCKS_BOTH = 0, LATHE_BLOCKS_ATTENTION = 1, LATHE_BLOCKS_FFN = 2 };

// All 0: the whole model. A part that begins behind layer 0 takes hidden states; blocks of one kind
// are of one layer, from hidden to hidden. docs/parts.md.
typedef struct lathe_model_part {
  size_t struct_size;
  int32_t first_layer;
  int32_t layers;       // from first_layer on; 0: all that there are
  int32_t input;        // LATHE_INPUT_...: what a step takes (lathe_session_step_hidden)
  int32_t output;       // LATHE_OUTPUT_...
  int32_t blocks;       // LATHE_BLOCKS_...
  int32_t no_residual;  // 1: what blocks of one kind add to the stream, without the stream
} lathe_model_part;

// A KV cache that keeps each key and each value of a head as a sum of atoms (docs/services.md), in
// place of kv_format. With LATHE_FUSION_AUTOMATIC or LATHE_FUSION_NONE; not for batches.
typedef struct lathe_kv_atoms {
  size_t struct_size;
  int32_t count;  // of a table, 1 to 65536
  int32_t terms;  // atoms of a sum, 1 to 64; 0: 8
  // Atoms of head_dim floats, each 1 long: `count` for all layers, or `count` for the keys and as
  // many for the values of each layer in turn; any other number is refused, and none is read. Read
  // while the session is opened. NULL, of 0 values: the axes, then random directions, always the
  // same, which know nothing of the model.
  const float* values;
  size_t value_count;
} lathe_kv_atoms;

// Where a weight lies on the device already. Asked for each that the session reads, on the thread
// that opens it, before that returns. Returns the address, in the session's context, of the
// tensor's `bytes`: as the file has them (LATHE_ELEMENT_BLOCKS), aligned to 16 bytes, or as the
// kernel "retile" makes them (LATHE_ELEMENT_TILES), aligned to 256; 0: nowhere. It stays the
// caller's, who keeps it there as long as the session; what wrote it is over, or stands on the
// session's stream. Must not call Lathe with the session that is being opened.
typedef uint64_t (*lathe_device_weights)(void* user, const char* tensor, int32_t element,
                                         int64_t bytes);

typedef struct lathe_session_options {
  size_t struct_size;
  int32_t executor;            // LATHE_EXECUTOR_...
  int32_t fusion;              // LATHE_FUSION_...
  int32_t kv_format;           // LATHE_KV_...
  int32_t context;             // positions of the KV cache; 0: the model's, at most 4096
  int32_t attention_splits;    // 1 to 64; 0: chosen
  int32_t threads;             // of the cpu executor; 0: all cores
  lathe_device* device;        // NULL: device 0 with default options. The cpu executor needs none
  struct CUstream_st* stream;  // of that device's context; NULL: a stream of the session's own
  lathe_progress progress;     // may be NULL
  void* progress_user;
  lathe_cancel cancel;  // may be NULL; asked after each kernel and each weight: LATHE_CANCELLED
  void* cancel_user;
  int32_t chunk;          // tokens of a prompt read at once, up to 8192; 0: 512, -1: one by one
  int32_t wait_limit_ms;  // how long the GPU may choose no token before it counts as hung; 0: five
                          // minutes, or LATHE_WAIT_LIMIT; -1: for ever
  // NULL: all weights are uploaded. A weight that the fused kernels want in tiles is asked for as
  // tiles, then as blocks, of which the session makes tiles of its own on the device. What is
  // nowhere is uploaded from the file. LATHE_INVALID_ARGUMENT with the cpu executor.
  lathe_device_weights weights;
  void* weights_user;
  const lathe_model_part* part;  // NULL: the whole model
  double parity;  // above 0: the least cosine, up to 1, of what the session and the cpu executor
                  // compute of a few tokens when it opens; else LATHE_INTERNAL. Takes the CPU a
                  // pass of the whole model for each
  int32_t time_steps;  // 1: lathe_session_get_step_times has the steps' times; eager and cpu only
  int32_t reserved;    // 0
  const char* tuning;  // what is set in place of a choice (docs/tuning.md); NULL: LATHE_TUNING
  const lathe_kv_atoms* atoms;  // NULL: keys and values are kept as kv_format says
} lathe_session_options;

typedef struct lathe_session_info {
  size_t struct_size;
  const char* device;     // "NVIDIA H200, sm_90a, driver 13.0" or "CPU, 2 threads"
  const char* executor;   // "graph"
  const char* routes;     // "llvm 14 kernels"
  const char* assembler;  // "nvJitLink 13.0 (libnvJitLink.so.13)"
  int32_t vocabulary;
  int32_t context;   // positions of the KV cache
  int32_t launches;  // of kernels, for a token; the mega executor makes them one
  int32_t kernels_built;
  int32_t kernels_from_cache;
  int32_t note_count;  // what was passed over, and why
  double build_seconds;
  double upload_seconds;
  int64_t weight_bytes;
  int64_t kv_bytes;
  int64_t scratch_bytes;
  int32_t chunk;   // tokens of a prompt read at once; 0: one by one, and a note says why
  int32_t layers;  // of the KV cache, each with kv_heads x head_dim numbers a position
  int32_t kv_heads;
  int32_t head_dim;
  int64_t borrowed_bytes;   // of weight_bytes, read where lathe_session_options::weights has them
  int32_t hidden;           // values of a hidden state
  int32_t submissions;      // calls of the driver that launch a token; 0 without a GPU
  int64_t bytes_to_device;  // of lathe_session_step
  int64_t bytes_to_host;    // of lathe_session_get_sampled; without logits, of a hidden state
  const char* graph_key;    // the same for plans that record the same graph
  const char* tuning;       // "132 blocks of 8 warps, 4 tiles ahead, attention in 16 splits"
  double parity;            // the cosine, where lathe_session_options::parity asked for it
  int32_t choice_count;     // what was chosen for it, and why
  int32_t kv_pages;         // of a batch's KV cache in pages, in all; 0: positions are in a row
  int32_t kv_pages_used;    // of those; the others are free
  int32_t reserved;         // 0
  // Of build_seconds, how long the opening only waited; the rest is part of upload_seconds too.
  double build_wait_seconds;
} lathe_session_info;

// One thing that was chosen; texts are valid while the session is.
typedef struct lathe_choice {
  size_t struct_size;
  // The key of a kernel, "executor", "fusion", "blocks" or "prompts"; "tuning": a word that changed
  // nothing.
  const char* what;
  const char* value;   // "mega", "warps 8, rows 2"
  const char* reason;  // a part of a sentence
  int32_t set;         // by the caller or the environment, and not chosen
} lathe_choice;

// Plans, builds, loads and uploads; waits for the end. options may be NULL. Needs the model's
// handle no longer than the call, and its file or bytes as long as the session.
LATHE_API lathe_status lathe_session_open(const lathe_model* model,
                                          const lathe_session_options* options,
                                          lathe_session** session);
// Waits for the work on its stream, but not for a hung one, nor while the stream is being captured:
// the work must then be over already.
LATHE_API lathe_status lathe_session_close(lathe_session* session);
LATHE_API lathe_status lathe_session_get_info(const lathe_session* session,
                                              lathe_session_info* info);
// 0 <= index < note_count.
LATHE_API lathe_status lathe_session_get_note(const lathe_session* session, int32_t index,
                                              const char** note);
// 0 <= index < choice_count.
LATHE_API lathe_status lathe_session_get_choice(const lathe_session* session, int32_t index,
                                                lathe_choice* choice);

// Decodes one token at the next position. On a GPU it returns before the work is done, which stands
// in order on the session's stream. LATHE_OUT_OF_RANGE, and nothing decoded, for a token outside
// the vocabulary and for a full context. Allocates nothing, takes no lock.
LATHE_API lathe_status lathe_session_step(lathe_session* session, int32_t token);
// Takes `count` tokens: a prompt. All are checked before the first is launched. On a GPU all but
// the last are read in chunks where lathe_session_info says so.
LATHE_API lathe_status lathe_session_feed(lathe_session* session, const int32_t* tokens,
                                          int32_t count);
// Decodes `token` and then, each time, the token that was chosen; writes the `count` chosen ones to
// `tokens` and waits for them. Faster than steps: the GPU does not wait for the host in between.
LATHE_API lathe_status lathe_session_generate(lathe_session* session, int32_t token,
                                              int32_t* tokens, int32_t count);

// Told of a token as soon as it is chosen, while later ones are being decoded; on the thread that
// called lathe_session_generate_until, before it returns. Must not call Lathe with that session.
typedef void (*lathe_token_listener)(void* user, int32_t token);

// Says which tokens may come next, before each choice and while the GPU decodes; on that thread
// too, and under the same rule. Sets bits in `allowed`, which has none to begin with: token i is
// bit i % 32 of word i / 32. `chosen` are the tokens of the run so far.
typedef void (*lathe_constraint)(void* user, const int32_t* chosen, int32_t count,
                                 uint32_t* allowed, int32_t words);

typedef struct lathe_run_options {
  size_t struct_size;
  const int32_t* stops;  // ids, at most 8: the first of them that is chosen is the last token
  int32_t stop_count;
  int32_t reserved;               // 0
  lathe_token_listener listener;  // may be NULL
  void* listener_user;
  lathe_cancel cancel;  // may be NULL; asked every 8 tokens, which then are decoded at a time
  void* cancel_user;
  // May be NULL. Else the host chooses each token, by the session's rules among those allowed,
  // which takes longer; lathe_cancel is asked before each. A -1 is the last token: nothing was
  // allowed.
  lathe_constraint constraint;
  void* constraint_user;
} lathe_run_options;

// lathe_session_generate that ends at a stop token, or once it is cancelled, which is LATHE_OK too:
// *chosen is how many tokens there are. options may be NULL. After an end at a stop token before
// `count` there are no logits until the next step; with a constraint there are.
LATHE_API lathe_status lathe_session_generate_until(lathe_session* session, int32_t token,
                                                    const lathe_run_options* options,
                                                    int32_t* tokens, int32_t count,
                                                    int32_t* chosen);
// Waits for the last step. The token chosen after it; -1 when every logit is NaN.
LATHE_API lathe_status lathe_session_get_sampled(lathe_session* session, int32_t* token);
// Waits for the last step. `count` is the vocabulary. The floats live until the next call with this
// session that decodes or closes.
LATHE_API lathe_status lathe_session_get_logits(lathe_session* session, const float** logits,
                                                int32_t* count);
// How many tokens the KV cache holds: the position of the next one.
LATHE_API lathe_status lathe_session_get_length(const lathe_session* session, int32_t* length);
// Forgets all positions from `length` on; 0 starts anew. Waits for nothing.
LATHE_API lathe_status lathe_session_rollback(lathe_session* session, int32_t length);

// For an engine with a CUDA graph of its own: adds one token to the graph that is being captured
// from the session's stream (lathe_session_options::stream). Each replay decodes the token that the
// one before chose. Waits for nothing; LATHE_INVALID_ARGUMENT where the stream is not captured.
// Everything else that a session does is refused while its stream is captured.
LATHE_API lathe_status lathe_session_record_step(lathe_session* session);
// The next replays begin with `token` at the next position. Waits for the steps before. More
// replays than the context has room for decode its last position again and again.
LATHE_API lathe_status lathe_session_begin_replays(lathe_session* session, int32_t token);
// Waits for the stream and takes what `count` replays have chosen since they began, or since the
// last that were taken. The session is then `count` tokens longer. LATHE_INVALID_ARGUMENT, and
// nothing taken, where fewer have run. Until all that ran are taken there is no sampled token, and
// there are no logits.
LATHE_API lathe_status lathe_session_take_replays(lathe_session* session, int32_t* tokens,
                                                  int32_t count);

// How a token is chosen. All 0: the likeliest. docs/sampling.md has the rules.
typedef struct lathe_sampling {
  size_t struct_size;
  float temperature;     // 0: the likeliest token; up to 100
  int32_t top_k;         // 1 to 64; 0: 64
  float top_p;           // above 0, up to 1; 0: 1, no limit
  float min_p;           // 0 to 1
  float repeat_penalty;  // above 0, up to 10; 0: 1, no penalty
  int32_t repeat_last;   // tokens that count as recent, 1 to 256; 0: 64
  uint64_t seed;
} lathe_sampling;

// From the next step on. NULL: the likeliest token again.
LATHE_API lathe_status lathe_session_set_sampling(lathe_session* session,
                                                  const lathe_sampling* sampling);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_ENGINE_H
