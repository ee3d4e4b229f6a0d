// Owns the choice of what the model runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/decode/options.h"
#include "examples/progress_line.h"

namespace lathe::decode {

struct OpenSession {
  std::unique_ptr<Session> session;
  std::vector<std::string> notes;  // what was tried in vain before; also said on stderr
  double seconds = 0;
};

// Opens what the options ask for. Where they leave it open and no GPU can be used, the CPU, and the
// first note says why.
Result<OpenSession> open_session(std::shared_ptr<const GgufFile> file, const Options& options,
                                 command_line::ProgressLine& progress);

}  // namespace lathe::decode
