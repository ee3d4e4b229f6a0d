// Owns keys and values outside of a session or a batch: ranges of a cache, captures of all layers,
// and snapshots of a prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/format.h"

namespace lathe {

enum class KvPart : std::uint8_t { keys, values };

// Some positions of one layer. Their values are f32 outside, whatever the cache's format: by
// position, then KV head, then element of the head, kv_heads x head_dim to a position. Keys are as
// the cache has them: normed and rotated.
struct KvRange {
  KvPart part = KvPart::keys;
  int layer = 0;
  int first = 0;
  int positions = 0;
};

// Of each layer the first `vectors` keys and values, each of a position and a KV head, the heads of
// a position after one another.
struct KvCapture {
  int head_dim = 0;
  int vectors = 0;
  std::vector<float> keys;  // layers x vectors x head_dim
  std::vector<float> values;

  std::span<const float> key(int layer, int vector) const { return of(keys, layer, vector); }
  std::span<const float> value(int layer, int vector) const { return of(values, layer, vector); }

 private:
  std::span<const float> of(const std::vector<float>& all, int layer, int vector) const {
    const std::size_t at = std::size_t(layer) * std::size_t(vectors) + std::size_t(vector);
    return std::span(all).subspan(at * std::size_t(head_dim), std::size_t(head_dim));
  }
};

// The tokens of a prefix with their keys and values, as a cache had them to the bit, in memory of
// its own: it outlives the sequence it was taken of, and never changes.
class KvSnapshot {
 public:
  int length() const { return int(tokens_.size()); }
  std::span<const std::int32_t> tokens() const { return tokens_; }
  // f32 of a cache of atoms.
  Format format() const { return format_; }
  std::int64_t bytes() const { return std::int64_t(rows_.size()); }

 private:
  friend class KvAccess;
  KvSnapshot() = default;

  std::uint64_t number_ = 0;  // that no other snapshot of this process has; its copies have it
  std::uint64_t model_ = 0;   // the fingerprint of the file
  Format format_ = Format::f32;
  std::string kv_;  // how the cache has keys and values, in words
  std::vector<std::int32_t> tokens_;
  std::vector<std::byte> rows_;  // keys of layer 0, values of layer 0, keys of layer 1 ...
};

}  // namespace lathe
