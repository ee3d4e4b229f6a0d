// Holds the library to what docs/embedding.md says of fork().
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/c_api/fixture.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

// PTX of a kernel and tokens of a model, with handles that are opened here.
bool works() {
  lathe_key* key = nullptr;
  lathe_compilers* compilers = nullptr;
  lathe_ptx* ptx = nullptr;
  lathe_model* model = nullptr;
  lathe_session* session = nullptr;
  const GgufImage image = tiny_model(model_shape(1));
  auto options = api::sized<lathe_session_options>();
  options.executor = LATHE_EXECUTOR_CPU;
  options.context = 16;
  options.threads = 3;
  std::vector<std::int32_t> tokens(4);
  const bool done =
      lathe_key_parse("gemv.q8_0.k256.n8.w4", &key) == LATHE_OK &&
      lathe_compilers_open(nullptr, &compilers) == LATHE_OK &&
      lathe_ptx_emit(compilers, key, "sm_90a", LATHE_ROUTE_TEXT, &ptx) == LATHE_OK &&
      lathe_model_open_bytes(image.bytes.data(), image.bytes.size(), "tiny", &model) == LATHE_OK &&
      lathe_session_open(model, &options, &session) == LATHE_OK &&
      lathe_session_generate(session, 5, tokens.data(), 4) == LATHE_OK;
  return lathe_session_close(session) == LATHE_OK && lathe_model_close(model) == LATHE_OK &&
         lathe_ptx_close(ptx) == LATHE_OK && lathe_compilers_close(compilers) == LATHE_OK &&
         lathe_key_close(key) == LATHE_OK && done;
}

// While no other thread of the parent is inside a call.
TEST(Fork, AChildOpensHandlesOfItsOwn) {
  ASSERT_TRUE(works());
  const Key open_in_the_parent = key_of("gemv.q8_0.k256.n8.w4");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(works() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(works());
}

}  // namespace
}  // namespace lathe::testing
