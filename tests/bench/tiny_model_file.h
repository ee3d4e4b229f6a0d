// Owns the model file that the tests of bench/ measure.
#pragma once

#include <string>

namespace lathe::bench {

// A tiny llama of random weights with a context of 64, in a file that is removed with the object.
class TinyModelFile {
 public:
  TinyModelFile();
  ~TinyModelFile();
  TinyModelFile(const TinyModelFile&) = delete;
  TinyModelFile& operator=(const TinyModelFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lathe::bench
