// Owns the last error of each thread, the words of a status, and the version functions.
#include "lathe/c/base.h"

#include <algorithm>

#include "runtime/c_api/call.h"

namespace lathe::c_api {
namespace {

constexpr bool same(Code code, int status) {
  return static_cast<int>(code) == status;
}
static_assert(same(Code::ok, LATHE_OK) && same(Code::invalid_argument, LATHE_INVALID_ARGUMENT) &&
              same(Code::unsupported, LATHE_UNSUPPORTED) &&
              same(Code::not_found, LATHE_NOT_FOUND) &&
              same(Code::corrupt_file, LATHE_CORRUPT_FILE) && same(Code::io, LATHE_IO) &&
              same(Code::no_driver, LATHE_NO_DRIVER) && same(Code::driver, LATHE_DRIVER) &&
              same(Code::compile, LATHE_COMPILE) &&
              same(Code::out_of_memory, LATHE_OUT_OF_MEMORY) &&
              same(Code::out_of_range, LATHE_OUT_OF_RANGE) &&
              same(Code::not_eligible, LATHE_NOT_ELIGIBLE) &&
              same(Code::internal, LATHE_INTERNAL) && same(Code::cancelled, LATHE_CANCELLED));

struct LastError {
  lathe_status status = LATHE_OK;
  Error error = {Code::ok, {}, {}};
  std::string text;
  const char* message = "";  // of `error`, or a literal where there was no memory
};
thread_local LastError t_last;

const char* detail(const char* name) {
  const auto found =
      std::ranges::find_if(t_last.error.details, [&](const Detail& d) { return d.name == name; });
  return found == t_last.error.details.end() ? nullptr : found->value.c_str();
}

lathe_status keep_literal(lathe_status status, const char* message) {
  t_last.status = status;
  t_last.error.driver_status = 0;
  t_last.error.details.clear();
  t_last.text.clear();
  t_last.message = message;
  return status;
}

}  // namespace

lathe_status fail_without_memory() noexcept {
  return keep_literal(LATHE_OUT_OF_MEMORY, "There is no host memory.");
}

lathe_status fail_by_exception() noexcept {
  return keep_literal(LATHE_INTERNAL, "An exception reached the C interface.");
}

lathe_status fail(Error error) noexcept {
  try {
    t_last.text = error.text();
  } catch (const std::bad_alloc&) {
    return fail_without_memory();
  }
  t_last.error = std::move(error);
  t_last.status = static_cast<lathe_status>(t_last.error.code);
  t_last.message = t_last.error.message.c_str();
  return t_last.status;
}

}  // namespace lathe::c_api

using namespace lathe;
using namespace lathe::c_api;

lathe_status lathe_last_error(lathe_error* error) {
  // Not guarded: a failure here must not take the place of the one that is asked for.
  if (!error || !sound_size(error->struct_size)) return LATHE_INVALID_ARGUMENT;
  const lathe_error values = {
      .struct_size = 0,
      .status = t_last.status,
      .driver_status = t_last.error.driver_status,
      .message = t_last.message,
      .text = t_last.text.empty() ? t_last.message : t_last.text.c_str(),
      .key = detail("key"),
      .hint = detail("hint"),
      .detail_count = static_cast<std::int32_t>(t_last.error.details.size())};
  static_cast<void>(write_struct(values, error, "lathe_error"));
  return LATHE_OK;
}

lathe_status lathe_last_error_detail(std::int32_t index, const char** name, const char** value) {
  const auto& details = t_last.error.details;
  if (!name || !value || index < 0 || static_cast<std::size_t>(index) >= details.size())
    return LATHE_INVALID_ARGUMENT;
  const Detail& found = details[static_cast<std::size_t>(index)];
  *name = found.name.c_str();
  *value = found.value.c_str();
  return LATHE_OK;
}

const char* lathe_status_text(lathe_status status) {
  return code_name(static_cast<Code>(status));
}

#define LATHE_QUOTE_(number) #number
#define LATHE_QUOTE(number) LATHE_QUOTE_(number)
const char* lathe_version_text(void) {
  return LATHE_QUOTE(LATHE_VERSION_MAJOR) "." LATHE_QUOTE(LATHE_VERSION_MINOR) "." LATHE_QUOTE(
      LATHE_VERSION_PATCH);
}

std::int32_t lathe_version(void) {
  return LATHE_VERSION_MAJOR * 10000 + LATHE_VERSION_MINOR * 100 + LATHE_VERSION_PATCH;
}

std::int32_t lathe_abi_version(void) {
  return LATHE_ABI_VERSION;
}
