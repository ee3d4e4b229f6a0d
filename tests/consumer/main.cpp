// The same in C++, through the wrapper; with the word nvrtc by that route.
#include <cstdio>
#include <cstring>

#include "lathe/lathe.hpp"

int main(int count, char** words) {
  using namespace lathe::api;
  const auto key = Key::parse("gemv.q4_k.k4096.n14336.w4");
  const auto compilers = Compilers::open();
  if (!key || !compilers) return 1;
  const auto ptx = compilers->emit(
      *key, "sm_80", count > 1 && std::strcmp(words[1], "nvrtc") == 0 ? Route::nvrtc : Route::text);
  if (!ptx) return std::fputs(ptx.error().text.c_str(), stderr), 1;
  const auto info = ptx->info();
  if (!info) return 1;
  std::fputs(info->text, stdout);
}
