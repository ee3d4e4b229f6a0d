// Owns the tokenizer section of a P64 container: tag "Q42T", versions 1 and 2.
#include "plan/p64_tokenizer.h"

#include <fmt/format.h>

#include <string_view>

#include "plan/gguf_entries.h"

namespace lathe::p64 {
namespace {

constexpr std::uint32_t kTag = 0x54323451;  // "Q42T"
constexpr std::uint16_t kVersion = 2;
constexpr std::uint32_t kMostTokens = 1'000'000;
constexpr std::uint32_t kMostMerges = 5'000'000;

Result<std::string> read_text(ByteCursor& cursor, std::string_view what) {
  LATHE_ASSIGN(const auto length, cursor.number<std::uint32_t>(what));
  LATHE_ASSIGN(const std::string_view text, cursor.characters(what, length));
  return std::string(text);
}

// A count of texts, `each` of which takes at least so many bytes.
Result<std::uint32_t> read_count(ByteCursor& cursor, std::string_view what, std::uint32_t most,
                                 std::size_t each) {
  const std::size_t offset = cursor.offset();
  LATHE_ASSIGN(const auto count, cursor.number<std::uint32_t>(what));
  if (count <= most && count <= cursor.remaining() / each) return count;
  return Error{
      Code::corrupt_file,
      fmt::format("{} at byte {} is {}, more than the section can hold", what, offset, count),
      {}};
}

void append_text(std::vector<std::byte>& to, std::string_view text) {
  append_number(to, static_cast<std::uint32_t>(text.size()));
  append_bytes(to, text);
}

}  // namespace

Result<Tokenizer> read_tokenizer(ByteCursor& cursor) {
  Tokenizer out;
  const std::size_t start = cursor.offset();
  LATHE_ASSIGN(const auto tag, cursor.number<std::uint32_t>("the tokenizer's tag"));
  if (tag != kTag) {
    return Error{
        Code::corrupt_file,
        fmt::format("the tokenizer at byte {} begins with 0x{:08x}, not \"Q42T\"", start, tag),
        {}};
  }
  LATHE_ASSIGN(const auto version, cursor.number<std::uint16_t>("the tokenizer's version"));
  if (version < 1 || version > kVersion) {
    return Error{Code::unsupported,
                 fmt::format("the tokenizer at byte {} has the version {}; 1 and 2 are read", start,
                             version),
                 {}};
  }
  LATHE_TRY(cursor.number<std::uint16_t>("the tokenizer's flags"));
  LATHE_ASSIGN(out.bos, cursor.number<std::uint32_t>("the tokenizer's first token"));
  LATHE_ASSIGN(out.eos, cursor.number<std::uint32_t>("the tokenizer's last token"));
  LATHE_ASSIGN(const auto add_bos, cursor.number<std::uint32_t>("the tokenizer's policy"));
  out.add_bos = (add_bos & 0xff) != 0;  // the other bytes are padding
  LATHE_ASSIGN(out.pre, read_text(cursor, "the pre-tokenizer"));

  LATHE_ASSIGN(const auto tokens,
               read_count(cursor, "the number of tokens", kMostTokens, sizeof(std::uint32_t)));
  out.tokens.reserve(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    LATHE_ASSIGN(std::string token, read_text(cursor, "a token"));
    out.tokens.push_back(std::move(token));
  }
  LATHE_ASSIGN(const auto merges,
               read_count(cursor, "the number of merges", kMostMerges, 2 * sizeof(std::uint32_t)));
  out.merges.reserve(merges);
  for (std::uint32_t i = 0; i < merges; ++i) {
    LATHE_ASSIGN(std::string left, read_text(cursor, "the left half of a merge"));
    LATHE_ASSIGN(std::string right, read_text(cursor, "the right half of a merge"));
    out.merges.emplace_back(std::move(left), std::move(right));
  }
  if (version < 2) return out;

  LATHE_ASSIGN(const auto stops, cursor.number<std::uint32_t>("the number of stop tokens"));
  const std::uint32_t count = stops & 0xff;  // the other bytes are padding
  if (count > kMostStops) {
    return Error{
        Code::corrupt_file,
        fmt::format("the tokenizer has {} stop tokens; the most are {}", count, kMostStops),
        {}};
  }
  for (std::uint32_t i = 0; i < kMostStops; ++i) {
    LATHE_ASSIGN(const auto stop, cursor.number<std::uint32_t>("a stop token"));
    if (i < count) out.stops.push_back(stop);
  }
  return out;
}

std::vector<std::byte> write_tokenizer(const Tokenizer& tokenizer) {
  std::vector<std::byte> out;
  append_number(out, kTag);
  append_number(out, kVersion);
  append_number(out, std::uint16_t{0});
  append_number(out, tokenizer.bos);
  append_number(out, tokenizer.eos);
  append_number(out, std::uint32_t{tokenizer.add_bos});
  append_text(out, tokenizer.pre);
  append_number(out, static_cast<std::uint32_t>(tokenizer.tokens.size()));
  for (const std::string& token : tokenizer.tokens) append_text(out, token);
  append_number(out, static_cast<std::uint32_t>(tokenizer.merges.size()));
  for (const auto& [left, right] : tokenizer.merges) {
    append_text(out, left);
    append_text(out, right);
  }
  append_number(out, static_cast<std::uint32_t>(tokenizer.stops.size()));
  for (std::size_t i = 0; i < kMostStops; ++i)
    append_number(out, i < tokenizer.stops.size() ? tokenizer.stops[i] : 0);
  return out;
}

}  // namespace lathe::p64
