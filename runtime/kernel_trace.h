// Owns what is told of kernels while they are made: lines of the log, and files of PTX and cubins.
//
// Threads: all members may be called from any number of threads at once.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/runtime/device.h"
#include "runtime/log.h"

namespace lathe {

class KernelTrace {
 public:
  // `dump`: the folder for files, which is made if need be; empty: none are written.
  KernelTrace(Log log, std::string dump);

  const Log& log() const { return log_; }
  // A line "kernel,EVENT" with all that is known of a loaded kernel.
  void tell(std::string_view event, std::string_view subject, const KernelInfo& info) const;
  // A line "kernel,EVENT" about one that was not made.
  void tell(std::string_view event, std::string_view subject, std::string_view route,
            const Error& error) const;

  // Writes NAME.EXTENSION where files are wanted, and returns its path; else returns nothing.
  std::string dump(std::string_view name, std::string_view extension,
                   std::span<const std::byte> bytes) const;
  // The first file that could not be written, a sentence; empty while there was none.
  std::string trouble() const;

 private:
  Log log_;
  std::string dump_;
  mutable std::mutex mutex_;  // guards trouble_
  mutable std::string trouble_;
};

}  // namespace lathe
