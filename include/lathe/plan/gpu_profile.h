// Owns what is known of a GPU when something is chosen for it, and how a choice is told.
#pragma once

#include <cstdint>
#include <string>

namespace lathe {

// Figures of a GPU as its driver tells them (Device::profile); without a GPU, those of an H200.
struct GpuProfile {
  int compute = 90;  // compute capability times ten, compared as a number: 12.0 is above 9.0
  int multiprocessors = 132;
  int block_shared_bytes = 227 * 1024;           // shared memory that a block may ask for
  int multiprocessor_shared_bytes = 228 * 1024;  // that the blocks of a multiprocessor share
  std::int64_t cache_bytes = 60 << 20;           // L2
};

// One thing that was chosen, for a plan or for a session.
struct Selected {
  // The key of a kernel, "executor", "fusion", "blocks" or "prompts"; "tuning": a word that changed
  // nothing.
  std::string what;
  std::string value;   // "warps 8, rows 2", "mega"
  std::string reason;  // a part of a sentence
  bool set = false;    // by the caller or the environment, and not chosen

  friend bool operator==(const Selected&, const Selected&) = default;
};

}  // namespace lathe
