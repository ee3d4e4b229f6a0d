// Owns the out-of-line parts of ByteCursor.
#include "plan/byte_cursor.h"

#include <fmt/format.h>

namespace lathe {

Error ByteCursor::truncated(std::string_view what, std::uint64_t needed) const {
  return Error{Code::corrupt_file,
               fmt::format("{} at byte {} needs {} bytes, but the file has only {} left", what,
                           offset_, needed, remaining()),
               {}};
}

Result<std::string_view> ByteCursor::characters(std::string_view what, std::uint64_t length) {
  if (length > remaining()) return truncated(what, length);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + offset_),
                              static_cast<std::size_t>(length));
  offset_ += static_cast<std::size_t>(length);
  return text;
}

Result<std::string_view> ByteCursor::text(std::string_view what) {
  if (remaining() < sizeof(std::uint64_t)) return truncated(what, sizeof(std::uint64_t));
  const std::size_t start = offset_;
  const auto length = take<std::uint64_t>();
  auto text = characters(what, length);
  if (!text) offset_ = start;
  return text;
}

}  // namespace lathe
