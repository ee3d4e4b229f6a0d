// Owns the table of pre-tokenizers, and the regular expression library that runs them.
#include "examples/decode/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <span>

#include "examples/decode/text/utf8.h"

namespace lathe::text {

namespace {

// The expressions are those of the models' own tokenizers. Several in a row are stages: each cuts
// the pieces that the one before it left, seeing nothing beyond them. Matches are pieces, and so is
// what lies between matches. \s and \S are replaced before compilation, see expand().

#define LATHE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// A word with at most one leading character that is neither letter nor digit.
#define LATHE_WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LATHE_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LATHE_SYMBOLS_AND_SPACES " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LATHE_SPACES
// Words that begin with capitals end where the capitals end: "HTTPServer" is one, "fooBar" two.
#define LATHE_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LATHE_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LATHE_CASED_WORD(suffix)                                  \
  "[^\\r\\n\\p{L}\\p{N}]?" LATHE_UPPER "*" LATHE_LOWER "+" suffix \
  "|"                                                             \
  "[^\\r\\n\\p{L}\\p{N}]?" LATHE_UPPER "+" LATHE_LOWER "*" suffix "|"
#define LATHE_CASED_SYMBOLS_AND_SPACES " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LATHE_SPACES
// Chinese and Japanese characters.
#define LATHE_HAN_AND_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define LATHE_HAN_TO_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

constexpr char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr char digit[] = "\\p{N}";
constexpr char digits_by_three[] = "\\p{N}{1,3}";
constexpr char llama3[] =
    LATHE_CONTRACTIONS "|" LATHE_WORD "|\\p{N}{1,3}|" LATHE_SYMBOLS_AND_SPACES;
constexpr char qwen2[] = LATHE_CONTRACTIONS "|" LATHE_WORD "|\\p{N}|" LATHE_SYMBOLS_AND_SPACES;
constexpr char qwen35[] = LATHE_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LATHE_SPACES;
constexpr char minicpm5[] = LATHE_CONTRACTIONS "|" LATHE_WORD "|\\p{N}+|" LATHE_SYMBOLS_AND_SPACES;
constexpr char seed_coder[] =
    LATHE_CONTRACTIONS "|" LATHE_WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LATHE_SPACES;
constexpr char bailing[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr char exaone_moe[] = LATHE_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr char tekken[] = LATHE_CASED_WORD("") "\\p{N}|" LATHE_CASED_SYMBOLS_AND_SPACES;
constexpr char gpt4o[] =
    LATHE_CASED_WORD(LATHE_CONTRACTIONS "?") "\\p{N}{1,3}|" LATHE_CASED_SYMBOLS_AND_SPACES;
constexpr char bloom[] =
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+";
constexpr char deepseek_letters[] =
    "\\s?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";
constexpr char deepseek_marks[] =
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
constexpr char deepseek_v3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LATHE_SPACES;

struct Row {
  // Every name that files use for these cuts.
  std::vector<std::string_view> names;
  std::vector<const char*> stages;
  bool whole_pieces_first = false;
  bool adds_bos = false;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      // Files older than the pre-tokenizer's name have none.
      {{"default", ""}, {"[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0",
        "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling",
        "jina-v1-en", "jina-v2-code", "roberta-bpe"},
       {gpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {digit, gpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {llama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {llama3}},
      {{"glm4", "glm5"}, {llama3}, true},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
        "solar-open", "grok-2"},
       {qwen2}},
      {{"qwen35"}, {qwen35}},
      {{"falcon"}, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"}},
      {{"tekken"}, {tekken}, true, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {gpt4o}},
      {{"deepseek-llm"},
       {"[\\r\\n]", deepseek_letters, deepseek_marks, "\\s+$", LATHE_HAN_TO_HANGUL, "\\p{N}+"}},
      {{"deepseek-coder"}, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", LATHE_HAN_TO_HANGUL, digit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       {digits_by_three, LATHE_HAN_AND_KANA, deepseek_v3}},
      {{"minicpm5"}, {digits_by_three, minicpm5}, true},
      {{"seed-coder"}, {seed_coder}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {bailing}},
      {{"exaone-moe"}, {exaone_moe}},
      {{"bloom", "gpt3-finnish", "poro-chat"}, {bloom}},
      {{"viking"}, {bloom, digit}},
  };
  return table;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : rows()) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) {
      return &row;
    }
  }
  return nullptr;
}

// Replaces \s and \S by the code points that Unicode calls White_Space, which is what the
// tokenizers mean. PCRE2's own \s holds U+180E too, and its name for the property came only
// with 10.40.
std::string expand(std::string_view pattern) {
  constexpr std::string_view space =
      "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
      "\\x{3000}";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' && in_class) {
        out.append(space);
      } else if (next == 's' || next == 'S') {
        out.append(next == 's' ? "[" : "[^").append(space).append("]");
      } else {
        out.append({c, next});
      }
      continue;
    }
    in_class = c == '[' || (in_class && c != ']');
    out.push_back(c);
  }
  return out;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

// Where the next match at or after `from` begins and ends; an empty range at the end if none does.
std::pair<size_t, size_t> find(const pcre2_code* code, pcre2_match_data* match,
                               std::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  int count = pcre2_match(code, subject, text.size(), from, options, match, nullptr);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The interpreter keeps its state on the heap, so it can go on where compiled code cannot.
    options |= PCRE2_NO_JIT;
    count = pcre2_match(code, subject, text.size(), from, options, match, nullptr);
  }
  if (count < 0) {
    return {text.size(), text.size()};
  }
  const size_t* bounds = pcre2_get_ovector_pointer(match);
  return {bounds[0], bounds[1]};
}

}  // namespace

struct Pretokenizer::Stage {
  Code code;
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

std::unique_ptr<const Pretokenizer> Pretokenizer::create(std::string_view name,
                                                         std::string* error) {
  const Row* row = find_row(name);
  if (row == nullptr) {
    *error = "the vocabulary needs the pre-tokenizer '" + std::string(name) +
             "', which isn't known here";
    return nullptr;
  }
  std::unique_ptr<Pretokenizer> made(new Pretokenizer);
  made->whole_pieces_first_ = row->whole_pieces_first;
  for (const char* stage : row->stages) {
    const std::string pattern = expand(stage);
    int code_error = 0;
    size_t offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP, &code_error, &offset, nullptr));
    if (code == nullptr) {
      char message[128] = "";
      pcre2_get_error_message(code_error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
      *error = "pre-tokenizer '" + std::string(name) + "': the regular expression library says '" +
               message + "' at offset " + std::to_string(offset) + " of " + pattern;
      return nullptr;
    }
    // Only a matter of speed: where the machine or the library cannot, matching is interpreted.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    made->stages_.push_back({std::move(code)});
  }
  return made;
}

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>* pieces) const {
  size_t begin = 0;
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = read_utf8(text, at);
    if (step.state != Utf8State::valid) {
      split_valid(text.substr(begin, at - begin), pieces);
      pieces->push_back(text.substr(at, step.length));
      begin = at + step.length;
    }
    at += step.length;
  }
  split_valid(text.substr(begin), pieces);
}

void Pretokenizer::split_valid(std::string_view text, std::vector<std::string_view>* pieces) const {
  if (text.empty()) {
    return;
  }
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  for (const Stage& stage : stages_) {
    const Match match(pcre2_match_data_create(1, nullptr));
    if (match == nullptr) {
      break;  // out of memory: uncut pieces still encode without loss
    }
    next.clear();
    for (const std::string_view piece : current) {
      size_t at = 0;
      while (at < piece.size()) {
        const auto [begin, end] = find(stage.code.get(), match.get(), piece, at);
        if (begin > at) {
          next.push_back(piece.substr(at, begin - at));
        }
        if (end > begin) {
          next.push_back(piece.substr(begin, end - begin));
        }
        at = end;
      }
    }
    current.swap(next);
  }
  pieces->insert(pieces->end(), current.begin(), current.end());
}

bool pretokenizer_adds_bos(std::string_view name) {
  const Row* row = find_row(name);
  return row != nullptr && row->adds_bos;
}

}  // namespace lathe::text
