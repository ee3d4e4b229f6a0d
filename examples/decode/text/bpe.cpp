// Owns byte-level byte-pair encoding, the "gpt2" vocabularies. Every byte is written as one visible
// character; a piece of text begins as its bytes' tokens, and the best-ranked pair of neighbours is
// merged until no pair is in the list of merges.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "examples/decode/text/encoder.h"
#include "examples/decode/text/pretokenizer.h"
#include "examples/decode/text/utf8.h"

namespace lathe::text {

namespace {

// The character that stands for a byte: printable Latin-1 characters stand for themselves, the
// other bytes take the code points from 256 on, in order.
std::array<char32_t, 256> make_byte_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}

struct Merge {
  int32_t rank;
  int32_t result;
};

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// One token of the piece in the making. The list is linked by index, so a merge moves nothing.
struct Symbol {
  int32_t id;
  int32_t previous;
  int32_t next;
};

constexpr int32_t merged_away = -1;

// A merge that was possible when it was queued. The ids tell whether it still is.
struct Candidate {
  int32_t rank;
  int32_t position;
  int32_t left;
  int32_t right;
};

// For a heap with the best on top: lowest rank first, of equal ones the leftmost.
bool worse(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

// Storage used again for every piece of one text.
struct Scratch {
  std::string spelled;
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
};

class Bpe final : public Encoder {
 public:
  Bpe(const TokenTable& table, std::unique_ptr<const Pretokenizer> pretokenizer)
      : table_(table),
        pretokenizer_(std::move(pretokenizer)),
        byte_characters_(make_byte_characters()) {
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string spelled;
      append_utf8(byte_characters_[byte], &spelled);
      byte_ids_[byte] = table_.find_ordinary(spelled);
      bytes_of_.emplace(byte_characters_[byte], static_cast<char>(byte));
    }
  }

  void read_merges(const std::vector<std::string>& merges) {
    merges_.reserve(merges.size());
    std::string result;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      // The left part may itself begin with a space, in vocabularies that don't spell bytes.
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos) {
        continue;
      }
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      result.assign(left).append(right);
      const int32_t left_id = table_.find_ordinary(left);
      const int32_t right_id = table_.find_ordinary(right);
      const int32_t result_id = table_.find_ordinary(result);
      // A merge with a part that isn't a token can never be reached, and one whose result isn't a
      // token would lose the text.
      if (left_id >= 0 && right_id >= 0 && result_id >= 0) {
        merges_.emplace(pair_key(left_id, right_id), Merge{static_cast<int32_t>(rank), result_id});
      }
    }
  }

  void encode(std::string_view text, bool /*after_special*/,
              std::vector<int32_t>* ids) const override {
    std::vector<std::string_view> pieces;
    pretokenizer_->split(text, &pieces);
    Scratch scratch;
    for (const std::string_view piece : pieces) {
      encode_piece(piece, &scratch, ids);
    }
  }

  std::string bytes(int32_t id) const override {
    const std::string& spelled = table_.text(id);
    std::string out;
    for (size_t at = 0; at < spelled.size();) {
      const Utf8Step step = read_utf8(spelled, at);
      const auto found = bytes_of_.find(step.code_point);
      if (step.state != Utf8State::valid || found == bytes_of_.end()) {
        return spelled;  // not spelled in byte characters, so it stands for itself
      }
      out.push_back(found->second);
      at += step.length;
    }
    return out;
  }

 private:
  void encode_piece(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    if (pretokenizer_->whole_pieces_first()) {
      scratch->spelled.clear();
      for (const char c : piece) {
        append_utf8(byte_characters_[static_cast<unsigned char>(c)], &scratch->spelled);
      }
      const int32_t id = table_.find_ordinary(scratch->spelled);
      if (id >= 0) {
        ids->push_back(id);
        return;
      }
    }
    std::vector<Symbol>& symbols = scratch->symbols;
    symbols.clear();
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      if (id < 0) {
        continue;  // the vocabulary has no way to say this byte
      }
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({id, index - 1, index + 1});
    }
    if (symbols.empty()) {
      return;
    }
    symbols.back().next = -1;
    merge(scratch);
    for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
      ids->push_back(symbols[static_cast<size_t>(at)].id);
    }
  }

  void merge(Scratch* scratch) const {
    std::vector<Symbol>& symbols = scratch->symbols;
    std::vector<Candidate>& queue = scratch->queue;
    const auto symbol = [&](int32_t index) -> Symbol& {
      return symbols[static_cast<size_t>(index)];
    };
    const auto offer = [&](int32_t position) {
      if (position < 0 || symbol(position).next < 0) {
        return;
      }
      const int32_t left = symbol(position).id;
      const int32_t right = symbol(symbol(position).next).id;
      const auto found = merges_.find(pair_key(left, right));
      if (found != merges_.end()) {
        queue.push_back({found->second.rank, position, left, right});
        std::push_heap(queue.begin(), queue.end(), worse);
      }
    };
    queue.clear();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      offer(static_cast<int32_t>(i));
    }
    while (!queue.empty()) {
      std::pop_heap(queue.begin(), queue.end(), worse);
      const Candidate best = queue.back();
      queue.pop_back();
      Symbol& left = symbol(best.position);
      if (left.id != best.left || left.next < 0 || symbol(left.next).id != best.right) {
        continue;
      }
      Symbol& right = symbol(left.next);
      left.id = merges_.find(pair_key(best.left, best.right))->second.result;
      left.next = right.next;
      right.id = merged_away;
      if (left.next >= 0) {
        symbol(left.next).previous = best.position;
      }
      offer(left.previous);
      offer(best.position);
    }
  }

  const TokenTable& table_;
  std::unique_ptr<const Pretokenizer> pretokenizer_;
  std::array<char32_t, 256> byte_characters_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<char32_t, char> bytes_of_;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace

std::unique_ptr<const Encoder> make_bpe(const TokenTable& table, const Vocabulary& vocabulary,
                                        std::string* error) {
  if (vocabulary.merges.empty()) {
    *error = "the vocabulary is of the kind 'gpt2' but has no merges";
    return nullptr;
  }
  std::unique_ptr<const Pretokenizer> pretokenizer = Pretokenizer::create(vocabulary.pre, error);
  if (pretokenizer == nullptr) {
    return nullptr;
  }
  auto bpe = std::make_unique<Bpe>(table, std::move(pretokenizer));
  bpe->read_merges(vocabulary.merges);
  return bpe;
}

}  // namespace lathe::text
