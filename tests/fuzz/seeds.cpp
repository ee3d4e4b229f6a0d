// Writes what the fuzzers begin with: sound inputs of each kind, a folder for each fuzzer.
//
// usage: fuzz_seeds FOLDER FOLDER_OF_PTX_TEMPLATES
#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/file_descriptor.h"
#include "tests/plan/p64_image.h"
#include "tests/plan/tiny_models.h"

namespace fs = std::filesystem;
using namespace lathe;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::ssize(bytes));
}

std::string_view characters(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Small enough for the fuzzers' longest input, and for the head, which is what a parser decides by,
// to be worth a mutation.
testing::TinyModel small(testing::TinyModel model) {
  model.layers = 1;
  model.weights = Format::q8_0;
  model.vocab = 32;
  return model;
}

// Each model as a GGUF file, as a P64 container, and as one that another program could have
// written.
void model_seeds(const fs::path& gguf, const fs::path& p64) {
  for (const testing::TinyModel& model :
       {small(testing::tiny_llama()), small(testing::tiny_qwen2()), small(testing::tiny_qwen3()),
        small(testing::tiny_gemma3()), small(testing::fusible(testing::tiny_llama()))}) {
    const std::string name = model.architecture + std::to_string(model.head_dim);
    const testing::GgufImage image = testing::tiny_model(model);
    write(gguf / name, characters(image.bytes));
    std::vector<std::byte> container = testing::p64_image(image.bytes, 256);
    write(p64 / name, characters(container));
    testing::drop_metadata(container);
    write(p64 / (name + "_records"), characters(container));
  }
}

// What FuzzedDataProvider takes for numbers comes last; a template is what comes first.
void template_seeds(const fs::path& folder, const fs::path& templates) {
  for (const auto& entry : fs::recursive_directory_iterator(templates))
    if (entry.is_regular_file())
      write(folder / entry.path().filename(), text_of(entry.path()) + std::string(16, '\1'));
  write(folder / "all",
        "${k:08x}\n@if bias\n${entry}\n@else\n@repeat i from 0 to warps\n${i}\n@end\n@end\n");
}

void cache_seeds(const fs::path& folder) {
  const std::string key = "kernel\nsubject gemv.q8_0.k256.n8.w4\ntarget sm_90a\n";
  const std::string payload(100, 'p');
  fs::create_directories(folder);
  const fs::path entry = folder / "part";
  {
    const FileDescriptor file(::open(entry.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600));
    write_cache_entry(file, key, std::as_bytes(std::span(payload)));
  }
  const std::string bytes = text_of(entry);
  fs::remove(entry);
  write(folder / "entry", '\0' + bytes);
  write(folder / "first_entry", '\7' + bytes + bytes);
  const std::uint64_t numbers[] = {2, 24 + 2 * bytes.size()};
  const std::string head(reinterpret_cast<const char*>(numbers), sizeof numbers);
  write(folder / "archive", "\15LATHEX1\n" + head + bytes + bytes);
  write(folder / "sound", '\17' + key + "\\x" + payload);
}

void tokenizer_seeds(const fs::path& folder) {
  write(folder / "words", "abcde hello <|im_start|> <b> \xE2\x96\x81 \xF0\x9F\x98\x80 123 it's");
  write(folder / "bytes", "\xFF\xFE \x80\xC3 hello\n\n  abc");
}

// Any bytes are calls; some more of them are more calls. The last byte says what is open before the
// first: models, a device, sessions, a batch, dense products.
void c_api_seeds(const fs::path& folder) {
  std::string bytes;
  for (int i = 0; i < 2048; ++i) bytes += static_cast<char>(i * 37 + i / 7);
  write(folder / "calls", bytes);
  write(folder / "few", bytes.substr(100, 64));
  for (const int open : {1, 2, 3, 5, 7, 15, 19, 35, 51, 63})
    write(folder / ("open" + std::to_string(open)), bytes + static_cast<char>(open));
  // The last error is asked for, without a place for it, before there was one.
  write(folder / "errors", std::string(29, '\0') + '\x0d' + '\0');
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: fuzz_seeds FOLDER FOLDER_OF_PTX_TEMPLATES\n";
    return 2;
  }
  const fs::path folder = arguments[1];
  model_seeds(folder / "gguf", folder / "p64");
  template_seeds(folder / "template", arguments[2]);
  cache_seeds(folder / "cache");
  tokenizer_seeds(folder / "tokenizer");
  c_api_seeds(folder / "c_api");
  return 0;
}
