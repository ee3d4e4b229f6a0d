// Owns the writing of the file.
#include "tests/bench/tiny_model_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/plan/tiny_models.h"

namespace lathe::bench {

TinyModelFile::TinyModelFile()
    : path_(::testing::TempDir() + "bench tiny " + std::to_string(::getpid()) + ".gguf") {
  const testing::GgufImage image = testing::tiny_model(testing::tiny_llama());
  std::ofstream file(path_, std::ios::binary);
  file.write(reinterpret_cast<const char*>(image.bytes.data()),
             static_cast<std::streamsize>(image.bytes.size()));
}

TinyModelFile::~TinyModelFile() {
  std::remove(path_.c_str());
}

}  // namespace lathe::bench
