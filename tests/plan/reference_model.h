// Owns the straight-line reference: the four model families in double precision, written from their
// definitions without plans, kernels or keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/plan/gguf.h"
#include "tests/plan/tiny_models.h"

namespace lathe::testing {

class ReferenceModel {
 public:
  // Weights come from the file, everything else from the description.
  ReferenceModel(const TinyModel& model, const GgufFile& file);

  // Decodes the next token of the sequence and returns its logits.
  std::vector<double> step(std::int32_t token);

 private:
  using Values = std::vector<double>;

  Values weights(const std::string& name) const;
  Values multiply(const std::string& name, const Values& x) const;
  // RMSNorm of each run of weight-many values.
  Values norm(const std::string& name, const Values& x) const;
  void rotate(Values& x, int layer) const;
  Values attend(const Values& q, int layer) const;
  Values attention_block(const Values& x, int layer);
  Values ffn_block(const Values& x, int layer) const;
  double activate(double x) const;

  TinyModel model_;
  const GgufFile& file_;
  int position_ = 0;
  std::vector<std::vector<Values>> keys_;    // [layer][position]
  std::vector<std::vector<Values>> values_;  // [layer][position]
};

}  // namespace lathe::testing
