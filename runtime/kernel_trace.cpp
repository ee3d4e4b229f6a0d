// Owns the fields of a kernel's log line and the names of dumped files.
#include "runtime/kernel_trace.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/file_descriptor.h"

namespace lathe {

KernelTrace::KernelTrace(Log log, std::string dump) : log_(std::move(log)), dump_(std::move(dump)) {
  std::error_code ignored;  // the first file will say what is wrong
  if (!dump_.empty()) std::filesystem::create_directories(dump_, ignored);
}

void KernelTrace::tell(std::string_view event, std::string_view subject,
                       const KernelInfo& info) const {
  if (!log_) return;
  LogLine line("kernel", event);
  line.field("key", subject).field("route", route_name(info.route));
  line.field("compiler", info.compiler);
  line.field("emit_ms", info.emit_ms).field("assemble_ms", info.assemble_ms);
  line.field("load_ms", info.load_ms);
  line.field("registers", info.registers).field("local_bytes", info.local_bytes);
  line.field("static_shared_bytes", info.shared_bytes);
  line.field("dynamic_shared_bytes", info.geometry.shared_bytes);
  line.field("cubin_bytes", info.cubin_bytes);
  log_.write(LogLevel::info, line);
}

void KernelTrace::tell(std::string_view event, std::string_view subject, std::string_view route,
                       const Error& error) const {
  if (!log_) return;
  LogLine line("kernel", event);
  line.field("key", subject);
  if (!route.empty()) line.field("route", route);
  line.field("why", error.message);
  for (const Detail& detail : error.details) line.field(detail.name, detail.value);
  log_.write(LogLevel::warning, line);
}

std::string KernelTrace::dump(std::string_view name, std::string_view extension,
                              std::span<const std::byte> bytes) const {
  if (dump_.empty()) return {};
  std::string path = fmt::format("{}/{}.{}", dump_, name, extension);
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() >= 0 && file.write(bytes.data(), bytes.size()) && file.close()) return path;
  const std::string sentence = fmt::format("Cannot write {}: {}.", path, std::strerror(errno));
  if (log_) log_.write(LogLevel::warning, LogLine("dump", "not-written").field("why", sentence));
  std::lock_guard lock(mutex_);
  if (trouble_.empty()) trouble_ = sentence;
  return {};
}

std::string KernelTrace::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace lathe
