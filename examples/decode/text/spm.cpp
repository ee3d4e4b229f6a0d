// Owns SentencePiece-style encoding, the "llama" vocabularies. Spaces become U+2581; the text
// begins as its characters, and the neighbours that form the token of the highest score are merged
// until none form a token. Characters that are no token are written as byte tokens.
#include <algorithm>
#include <array>
#include <cmath>

#include "examples/decode/text/encoder.h"
#include "examples/decode/text/utf8.h"

namespace lathe::text {

namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";
constexpr std::string_view hex_digits = "0123456789ABCDEF";

// A stretch of the text. Neighbours in the list are neighbours in the text, so the text of a pair
// is one stretch too and needs no copy.
struct Symbol {
  size_t begin;
  size_t length;  // 0 once merged into its left neighbour
  int32_t previous;
  int32_t next;
};

// A merge that was possible when it was queued. The length tells whether it still is: symbols only
// ever grow.
struct Candidate {
  float score;
  int32_t left;
  int32_t right;
  size_t length;
};

// For a heap with the best on top: highest score first, of equal ones the leftmost.
bool worse(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

std::string byte_token(unsigned char byte) {
  return {'<', '0', 'x', hex_digits[byte >> 4], hex_digits[byte & 15], '>'};
}

class Spm final : public Encoder {
 public:
  Spm(const TokenTable& table, const Vocabulary& vocabulary)
      : table_(table),
        scores_(vocabulary.scores),
        unknown_(vocabulary.unknown),
        add_space_prefix_(vocabulary.add_space_prefix) {
    for (size_t byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = table_.find(byte_token(static_cast<unsigned char>(byte)));
    }
  }

  void encode(std::string_view text, bool after_special, std::vector<int32_t>* ids) const override {
    if (text.empty()) {
      return;
    }
    std::string marked;
    marked.reserve(text.size() + text.size() / 2);
    if (add_space_prefix_ && after_special) {
      marked.append(space_mark);
    }
    for (const char c : text) {
      if (c == ' ') {
        marked.append(space_mark);
      } else {
        marked.push_back(c);
      }
    }
    std::vector<Symbol> symbols;
    symbols.reserve(marked.size());
    for (size_t at = 0; at < marked.size();) {
      const size_t length = read_utf8(marked, at).length;
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({at, length, index - 1, index + 1});
      at += length;
    }
    symbols.back().next = -1;
    merge(marked, &symbols);
    for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(at)];
      append_symbol(std::string_view(marked).substr(symbol.begin, symbol.length), ids);
    }
  }

  std::string bytes(int32_t id) const override {
    const std::string_view token = table_.text(id);
    if (table_.type(id) == TokenType::byte) {
      const int byte = byte_of(token);
      return byte < 0 ? std::string(token) : std::string(1, static_cast<char>(byte));
    }
    std::string out;
    for (size_t at = 0; at < token.size();) {
      if (token.compare(at, space_mark.size(), space_mark) == 0) {
        out.push_back(' ');
        at += space_mark.size();
      } else {
        out.push_back(token[at++]);
      }
    }
    return out;
  }

 private:
  void merge(std::string_view text, std::vector<Symbol>* list) const {
    std::vector<Symbol>& symbols = *list;
    std::vector<Candidate> queue;
    const auto symbol = [&](int32_t index) -> Symbol& {
      return symbols[static_cast<size_t>(index)];
    };
    const auto offer = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) {
        return;
      }
      const size_t length = symbol(left).length + symbol(right).length;
      const int32_t id = table_.find_ordinary(text.substr(symbol(left).begin, length));
      if (id >= 0) {
        queue.push_back({scores_[static_cast<size_t>(id)], left, right, length});
        std::push_heap(queue.begin(), queue.end(), worse);
      }
    };
    for (size_t i = 1; i < symbols.size(); ++i) {
      offer(static_cast<int32_t>(i - 1), static_cast<int32_t>(i));
    }
    while (!queue.empty()) {
      std::pop_heap(queue.begin(), queue.end(), worse);
      const Candidate best = queue.back();
      queue.pop_back();
      Symbol& left = symbol(best.left);
      Symbol& right = symbol(best.right);
      if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
        continue;
      }
      left.length = best.length;
      left.next = right.next;
      right.length = 0;
      if (left.next >= 0) {
        symbol(left.next).previous = best.left;
      }
      offer(left.previous, best.left);
      offer(best.left, left.next);
    }
  }

  void append_symbol(std::string_view text, std::vector<int32_t>* ids) const {
    const int32_t id = table_.find_ordinary(text);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
    const auto id_of_byte = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::all_of(text.begin(), text.end(), [&](char c) { return id_of_byte(c) >= 0; })) {
      std::transform(text.begin(), text.end(), std::back_inserter(*ids), id_of_byte);
    } else if (unknown_ >= 0) {
      ids->push_back(unknown_);
    }
  }

  // The byte that "<0x0A>" stands for; -1 if the text isn't of that form.
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
      return -1;
    }
    const size_t high = hex_digits.find(token[3]);
    const size_t low = hex_digits.find(token[4]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return -1;
    }
    return static_cast<int>(high << 4 | low);
  }

  const TokenTable& table_;
  std::vector<float> scores_;
  std::array<int32_t, 256> byte_ids_{};
  int32_t unknown_;
  bool add_space_prefix_;
};

}  // namespace

std::unique_ptr<const Encoder> make_spm(const TokenTable& table, const Vocabulary& vocabulary,
                                        std::string* error) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    *error = "the vocabulary is of the kind 'llama' and has " +
             std::to_string(vocabulary.tokens.size()) + " tokens but " +
             std::to_string(vocabulary.scores.size()) + " scores";
    return nullptr;
  }
  for (size_t i = 0; i < vocabulary.scores.size(); ++i) {
    // The order of merges would be undefined.
    if (std::isnan(vocabulary.scores[i])) {
      *error = "the score of token " + std::to_string(i) + " isn't a number";
      return nullptr;
    }
  }
  return std::make_unique<Spm>(table, vocabulary);
}

}  // namespace lathe::text
