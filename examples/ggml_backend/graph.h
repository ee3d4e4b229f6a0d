// Owns the computing of ggml graphs on a device.
#pragma once

#include <memory>

#include "device.h"
#include "ggml-backend-impl.h"

namespace lathe_ggml {

// What is kept from graph to graph: the steps of operations seen before, and recorded graphs.
class GraphRunner {
 public:
  explicit GraphRunner(Device* device);
  ~GraphRunner();

  // Returns before the work is done, which stands on the device's stream.
  ggml_status run(ggml_cgraph* graph);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lathe_ggml
