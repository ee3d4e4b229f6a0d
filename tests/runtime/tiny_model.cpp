// Owns the shape and formats of the runtime tests' model.
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

// The image's bytes live as long as the file that views them.
struct OwnedFile {
  GgufImage image;
  std::shared_ptr<const GgufFile> file;
};

}  // namespace

TinyModel model_shape(int layers) {
  TinyModel model;
  model.layers = layers;
  model.hidden = model.ffn = 256;
  model.head_dim = model.rotary = 64;
  model.vocab = 160;
  model.context = 4096;
  model.tied = false;
  model.weights = Format::q4_k;
  model.exceptions["output.weight"] = Format::q6_k;
  for (int i = 0; i < layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    model.exceptions[prefix + "attn_v.weight"] = Format::q6_k;
    model.exceptions[prefix + "ffn_down.weight"] = Format::q6_k;
  }
  return model;
}

std::shared_ptr<const GgufFile> make_model(int layers) {
  return make_model(model_shape(layers));
}

std::shared_ptr<const GgufFile> make_model(const TinyModel& model) {
  auto owned = std::make_shared<OwnedFile>();
  owned->image = tiny_model(model);
  auto file = GgufFile::from_bytes(owned->image.bytes, "tiny model");
  if (!file) return nullptr;
  owned->file = file.value();
  return {owned, owned->file.get()};
}

}  // namespace lathe::testing
