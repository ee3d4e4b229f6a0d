// Owns the straight-line reference of the four model families.
#include "tests/plan/reference_model.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace lathe::testing {
namespace {

std::string blk(int layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

void accumulate(std::vector<double>& to, const std::vector<double>& what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

}  // namespace

ReferenceModel::ReferenceModel(const TinyModel& model, const GgufFile& file)
    : model_(model),
      file_(file),
      keys_(static_cast<std::size_t>(model.layers)),
      values_(static_cast<std::size_t>(model.layers)) {}

ReferenceModel::Values ReferenceModel::weights(const std::string& name) const {
  const GgufTensor& tensor = *file_.tensor(name);
  const std::int64_t count = tensor.k() * tensor.rows();
  std::vector<float> decoded(static_cast<std::size_t>(count));
  for (const FormatRow& format : formats()) {
    if (format.ggml_type != tensor.ggml_type) continue;
    format.unpack(file_.data(tensor).data(), count, decoded.data());
  }
  return {decoded.begin(), decoded.end()};
}

ReferenceModel::Values ReferenceModel::multiply(const std::string& name, const Values& x) const {
  const Values matrix = weights(name);
  Values y(matrix.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t i = 0; i < x.size(); ++i) y[r] += matrix[r * x.size() + i] * x[i];
  }
  return y;
}

ReferenceModel::Values ReferenceModel::norm(const std::string& name, const Values& x) const {
  const Values weight = weights(name);
  const std::size_t k = weight.size();
  Values y(x.size());
  for (std::size_t start = 0; start < x.size(); start += k) {
    double squares = 0;
    for (std::size_t i = 0; i < k; ++i) squares += x[start + i] * x[start + i];
    const double rms = std::sqrt(squares / static_cast<double>(k) + model_.epsilon);
    for (std::size_t i = 0; i < k; ++i) y[start + i] = x[start + i] / rms * weight[i];
  }
  return y;
}

void ReferenceModel::rotate(Values& x, int layer) const {
  const bool local = model_.is_gemma() && model_.is_local(layer);
  const double theta = local ? 10000 : model_.theta;
  const double factor = local ? 1 : model_.linear_factor;
  const int pairs = model_.rotary / 2;
  for (std::size_t head = 0; head < x.size(); head += static_cast<std::size_t>(model_.head_dim)) {
    for (int i = 0; i < pairs; ++i) {
      double angle = position_ * std::pow(theta, -static_cast<double>(i) / pairs) / factor;
      if (model_.rope_factors) angle /= model_.rope_factor(i);
      double& real = x[head + static_cast<std::size_t>(model_.rotates_halves() ? i : 2 * i)];
      double& imaginary =
          x[head + static_cast<std::size_t>(model_.rotates_halves() ? i + pairs : 2 * i + 1)];
      const std::complex<double> turned =
          std::complex<double>(real, imaginary) * std::polar(1.0, angle);
      real = turned.real();
      imaginary = turned.imag();
    }
  }
}

ReferenceModel::Values ReferenceModel::attend(const Values& q, int layer) const {
  const auto& keys = keys_[static_cast<std::size_t>(layer)];
  const auto& values = values_[static_cast<std::size_t>(layer)];
  const auto dim = static_cast<std::size_t>(model_.head_dim);
  const int group = model_.heads / model_.kv_heads;
  Values y(q.size());
  for (int head = 0; head < model_.heads; ++head) {
    const std::size_t at = static_cast<std::size_t>(head) * dim;
    const std::size_t kv_at = static_cast<std::size_t>(head / group) * dim;
    Values weight;
    double total = 0;
    for (int p = 0; p <= position_; ++p) {
      const bool visible = !model_.is_local(layer) || p > position_ - model_.window;
      double score = 0;
      for (std::size_t e = 0; e < dim; ++e) {
        score += q[at + e] * keys[static_cast<std::size_t>(p)][kv_at + e];
      }
      weight.push_back(visible ? std::exp(score / std::sqrt(model_.head_dim)) : 0);
      total += weight.back();
    }
    for (int p = 0; p <= position_; ++p) {
      for (std::size_t e = 0; e < dim; ++e) {
        y[at + e] += weight[static_cast<std::size_t>(p)] / total *
                     values[static_cast<std::size_t>(p)][kv_at + e];
      }
    }
  }
  return y;
}

ReferenceModel::Values ReferenceModel::attention_block(const Values& x, int layer) {
  const Values input = norm(blk(layer, "attn_norm.weight"), x);
  Values q = multiply(blk(layer, "attn_q.weight"), input);
  Values k = multiply(blk(layer, "attn_k.weight"), input);
  Values v = multiply(blk(layer, "attn_v.weight"), input);
  if (model_.has_qkv_bias()) {
    accumulate(q, weights(blk(layer, "attn_q.bias")));
    accumulate(k, weights(blk(layer, "attn_k.bias")));
    accumulate(v, weights(blk(layer, "attn_v.bias")));
  }
  if (model_.has_qk_norm()) {
    q = norm(blk(layer, "attn_q_norm.weight"), q);
    k = norm(blk(layer, "attn_k_norm.weight"), k);
  }
  rotate(q, layer);
  rotate(k, layer);
  keys_[static_cast<std::size_t>(layer)].push_back(k);
  values_[static_cast<std::size_t>(layer)].push_back(v);
  const Values y = multiply(blk(layer, "attn_output.weight"), attend(q, layer));
  return model_.is_gemma() ? norm(blk(layer, "post_attention_norm.weight"), y) : y;
}

double ReferenceModel::activate(double x) const {
  if (!model_.is_gemma()) return x / (1 + std::exp(-x));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

ReferenceModel::Values ReferenceModel::ffn_block(const Values& x, int layer) const {
  const Values input = norm(blk(layer, "ffn_norm.weight"), x);
  Values gate = multiply(blk(layer, "ffn_gate.weight"), input);
  const Values up = multiply(blk(layer, "ffn_up.weight"), input);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(gate[i]) * up[i];
  const Values y = multiply(blk(layer, "ffn_down.weight"), gate);
  return model_.is_gemma() ? norm(blk(layer, "post_ffw_norm.weight"), y) : y;
}

std::vector<double> ReferenceModel::step(std::int32_t token) {
  const Values table = weights("token_embd.weight");
  const auto row_start = table.begin() + std::ptrdiff_t{token} * model_.hidden;
  Values x(row_start, row_start + model_.hidden);
  if (model_.is_gemma()) {
    for (double& value : x) value *= std::sqrt(model_.hidden);
  }
  for (int layer = 0; layer < model_.layers; ++layer) {
    accumulate(x, attention_block(x, layer));
    accumulate(x, ffn_block(x, layer));
  }
  ++position_;
  return multiply(model_.tied ? "token_embd.weight" : "output.weight",
                  norm("output_norm.weight", x));
}

}  // namespace lathe::testing
