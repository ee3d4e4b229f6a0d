// Owns the arguments, the handles and the end of a run of the C interface's fuzzer.
#include "tests/fuzz/c_caller.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace lathe::fuzz {

Caller::~Caller() {
  // A session needs no model, nor does anything else what it was made of: newest kinds first is as
  // good an order as any.
  std::apply(
      [](auto&... lists) {
        const auto close_all = [](auto& handles) {
          for (auto* handle : handles) close(handle);
        };
        (close_all(lists), ...);
      },
      handles_);
  if (!driver_) return;
  if (!memory_.empty()) driver_->take_back(reinterpret_cast<std::uintptr_t>(memory_.data()));
  for (const std::string& violation : driver_->violations())
    std::fprintf(stderr, "%s\n", violation.c_str());
  require(driver_->violations().empty());
  const std::string left = driver_->leaks(), expected = stream_ ? "1 streams, " : "";
  if (left != expected) std::fprintf(stderr, "left: %s\n", left.c_str());
  require(left == expected);
}

std::array<std::int32_t, kMostTokens> Caller::tokens() {
  // A single wrong one is enough for a refusal: most calls have none.
  const bool any = one_of(4) == 0;
  std::array<std::int32_t, kMostTokens> tokens;
  for (std::int32_t& each : tokens) each = any ? token() : one_of(kVocabulary);
  return tokens;
}

const char* Caller::text(const char* usual) {
  switch (one_of(4)) {
    case 0:
      return nullptr;
    case 1:
      return bytes(64).c_str();
    default:
      return usual;
  }
}

void Caller::close_any() {
  switch (one_of(11)) {
    case 0:
      return seen(close(any<lathe_key>()));
    case 1:
      return seen(close(any<lathe_compilers>()));
    case 2:
      return seen(close(any<lathe_ptx>()));
    case 3:
      return seen(close(any<lathe_device>()));
    case 4:
      return seen(close(any<lathe_kernel>()));
    case 5:
      return seen(close(any<lathe_model>()));
    case 6:
      return seen(close(any<lathe_batch>()));
    case 7:
      return seen(close(any<lathe_snapshot>()));
    case 8:
      return seen(close(any<lathe_dense>()));
    case 9:
      return seen(close(any<lathe_dense_cache>()));
    default:
      return seen(close(any<lathe_session>()));
  }
}

testing::FakeDriver& Caller::driver() {
  // No persistent kernel: nothing here runs one.
  if (!driver_) driver_.emplace(testing::FakeOptions{.blocks_per_multiprocessor = 0});
  return *driver_;
}

CUstream Caller::stream() {
  if (!stream_) stream_ = driver().make_stream();
  return stream_;
}

void Caller::wait_for(CUstream stream) {
  const Driver& calls = driver().table();
  if (!context_) context_ = driver().make_context();
  driver().push_context(context_);
  require(calls.cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CUcontext popped = nullptr;
  require(calls.cuCtxPopCurrent(&popped) == CUDA_SUCCESS && popped == context_);
}

std::uint64_t Caller::device_memory() {
  constexpr std::size_t kAlignment = 256;
  const auto aligned = [&] {
    return (reinterpret_cast<std::uintptr_t>(memory_.data()) + kAlignment - 1) / kAlignment *
           kAlignment;
  };
  if (memory_.empty()) {
    memory_.resize(std::size_t(kDeviceBytes) + kAlignment);
    driver().lend(reinterpret_cast<std::uintptr_t>(memory_.data()), memory_.size(), false);
  }
  return aligned();
}

const std::string& scratch_folder() {
  struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "lathe_fuzz_XXXXXX").string();
    Folder() { require(::mkdtemp(path.data()) != nullptr); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace lathe::fuzz
