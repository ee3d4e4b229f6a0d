// Owns what tests of the C interface share: the last error as text, and handles that close
// themselves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lathe/lathe.hpp"
#include "tests/plan/gguf_writer.h"

namespace lathe::testing {

template <auto close>
struct Close {
  template <typename Handle>
  void operator()(Handle* handle) const {
    EXPECT_EQ(close(handle), LATHE_OK);
  }
};
using Key = std::unique_ptr<lathe_key, Close<lathe_key_close>>;
using CompilersHandle = std::unique_ptr<lathe_compilers, Close<lathe_compilers_close>>;
using PtxHandle = std::unique_ptr<lathe_ptx, Close<lathe_ptx_close>>;
using DeviceHandle = std::unique_ptr<lathe_device, Close<lathe_device_close>>;
using KernelHandle = std::unique_ptr<lathe_kernel, Close<lathe_kernel_close>>;
using Model = std::unique_ptr<lathe_model, Close<lathe_model_close>>;
using SessionHandle = std::unique_ptr<lathe_session, Close<lathe_session_close>>;

inline std::string last_message() {
  auto error = api::sized<lathe_error>();
  EXPECT_EQ(lathe_last_error(&error), LATHE_OK);
  return error.message;
}

inline Key key_of(const char* text) {
  lathe_key* key = nullptr;
  EXPECT_EQ(lathe_key_parse(text, &key), LATHE_OK) << last_message();
  return Key(key);
}

inline Model model_of(const GgufImage& image) {
  lathe_model* model = nullptr;
  EXPECT_EQ(lathe_model_open_bytes(image.bytes.data(), image.bytes.size(), "tiny", &model),
            LATHE_OK)
      << last_message();
  return Model(model);
}

}  // namespace lathe::testing

// A call that is refused with this status, and whose sentence holds these words.
#define EXPECT_REFUSED(call, status, words)                                             \
  do {                                                                                  \
    EXPECT_EQ(call, status);                                                            \
    const std::string message = ::lathe::testing::last_message();                       \
    EXPECT_NE(message.find(words), std::string::npos) << #call << " said: " << message; \
  } while (false)
