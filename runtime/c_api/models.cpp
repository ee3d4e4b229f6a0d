// Owns the C functions about model files.
#include "lathe/plan/model_report.h"
#include "lathe/runtime/convert.h"
#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

Result<Integrity> integrity_of(const lathe_model_options* given) {
  LATHE_ASSIGN(const auto options, read_optional_struct(given, "lathe_model_options"));
  switch (options.integrity) {
    case LATHE_INTEGRITY_METADATA:
      return Integrity::metadata;
    case LATHE_INTEGRITY_FULL:
      return Integrity::full;
    case LATHE_INTEGRITY_STRUCTURE:
      return Integrity::structure;
  }
  return unknown_number("integrity", options.integrity);
}

Result<lathe_model*> open_model(std::shared_ptr<const GgufFile> file) {
  Result<ModelSpec> spec = read_model_spec(*file);
  return open_handle(
      std::unique_ptr<ModelObject>(new ModelObject{std::move(file), std::move(spec)}));
}

}  // namespace

lathe_status lathe_model_open(const char* path, lathe_model** model) {
  return lathe_model_open_with(path, nullptr, model);
}

lathe_status lathe_model_open_with(const char* path, const lathe_model_options* options,
                                   lathe_model** model) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(path);
    LATHE_NOT_NULL(model);
    LATHE_ASSIGN(const Integrity integrity, integrity_of(options));
    LATHE_ASSIGN(auto file, GgufFile::open(path, integrity));
    LATHE_ASSIGN(*model, open_model(std::move(file)));
    return {};
  });
}

lathe_status lathe_model_open_bytes(const void* bytes, std::size_t byte_count, const char* name,
                                    lathe_model** model) {
  return lathe_model_adopt(bytes, byte_count, name, nullptr, model);
}

lathe_status lathe_model_adopt(const void* bytes, std::size_t byte_count, const char* name,
                               const lathe_model_options* options, lathe_model** model) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(bytes);
    LATHE_NOT_NULL(name);
    LATHE_NOT_NULL(model);
    LATHE_ASSIGN(const Integrity integrity, integrity_of(options));
    const std::span given(static_cast<const std::byte*>(bytes), byte_count);
    LATHE_ASSIGN(auto file, GgufFile::from_bytes(given, name, integrity));
    LATHE_ASSIGN(*model, open_model(std::move(file)));
    return {};
  });
}

lathe_status lathe_model_close(lathe_model* model) {
  return guarded([&] { return close<ModelObject>(model); });
}

lathe_status lathe_model_get_info(const lathe_model* model, lathe_model_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const ModelObject* object, find<ModelObject>(model));
    if (!object->spec) return object->spec.error();
    const ModelSpec& spec = object->spec.value();
    return write_struct({.struct_size = 0,
                         .path = object->file->path().c_str(),
                         .architecture = spec.architecture.c_str(),
                         .name = spec.name.c_str(),
                         .layers = spec.layers,
                         .hidden = spec.hidden,
                         .heads = spec.heads,
                         .kv_heads = spec.kv_heads,
                         .head_dim = spec.head_dim,
                         .vocabulary = spec.vocab,
                         .context = spec.context,
                         .tensor_count = std::int32_t(object->file->tensors().size())},
                        info, "lathe_model_info");
  });
}

lathe_status lathe_model_get_report(const lathe_model* model, std::int32_t context,
                                    std::int32_t kv_format, lathe_model_report* report) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const ModelObject* object, find<ModelObject>(model));
    LATHE_ASSIGN(const Format kv, kv_format_of(kv_format));
    LATHE_ASSIGN(const ModelReport found, report_model(*object->file, context, kv));
    const GgufTensor* largest = object->file->tensor(found.largest_tensor);
    return write_struct({.struct_size = 0,
                         .container = container_name(found.container),
                         .version = found.version,
                         .decodes = found.refusal.empty() ? 1 : 0,
                         .file_bytes = found.file_bytes,
                         .data_offset = found.data_offset,
                         .tensor_bytes = found.tensor_bytes,
                         .largest_tensor = largest != nullptr ? largest->name.c_str() : "",
                         .largest_tensor_bytes = found.largest_tensor_bytes,
                         .kv_bytes = found.kv_bytes,
                         .context = found.context,
                         .layers = found.spec.layers,
                         .heads = found.spec.heads,
                         .kv_heads = found.spec.kv_heads},
                        report, "lathe_model_report");
  });
}

lathe_status lathe_model_convert(const lathe_model* model, const char* path,
                                 lathe_progress progress, void* user) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(path);
    LATHE_ASSIGN(const ModelObject* object, find<ModelObject>(model));
    ConvertOptions options;
    options.progress = progress_of(progress, user);
    return convert_model(*object->file, path, options);
  });
}
