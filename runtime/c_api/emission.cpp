// Owns the C functions about keys, compilers and PTX.
#include "runtime/c_api/objects.h"
#include "runtime/environment.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

static_assert(LATHE_ACCESS_READ == static_cast<int>(Access::read) + 1 &&
              LATHE_ACCESS_WRITE == static_cast<int>(Access::write) + 1 &&
              LATHE_ACCESS_READ_WRITE == static_cast<int>(Access::read_write) + 1);
static_assert(LATHE_ELEMENT_F32 == static_cast<int>(Element::f32) &&
              LATHE_ELEMENT_I32 == static_cast<int>(Element::i32) &&
              LATHE_ELEMENT_BLOCKS == static_cast<int>(Element::blocks) &&
              LATHE_ELEMENT_TILES == static_cast<int>(Element::tiles) &&
              LATHE_ELEMENT_KV == static_cast<int>(Element::kv) &&
              LATHE_ELEMENT_F16 == static_cast<int>(Element::f16));

}  // namespace

lathe_status lathe_key_parse(const char* text, lathe_key** key) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(text);
    LATHE_NOT_NULL(key);
    auto object = std::make_unique<KeyObject>();
    LATHE_ASSIGN(object->key, parse_key(text));
    LATHE_TRY(check_key(object->key));
    object->text = object->key.text();
    object->entry = object->key.symbol();
    object->params = row(object->key.type).params(object->key);
    LATHE_ASSIGN(*key, open_handle(std::move(object)));
    return {};
  });
}

lathe_status lathe_key_close(lathe_key* key) {
  return guarded([&] { return close<KeyObject>(key); });
}

lathe_status lathe_key_get_info(const lathe_key* key, lathe_key_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const KeyObject* object, find<KeyObject>(key));
    const KernelRow& kernel = row(object->key.type);
    const Cost cost = kernel.cost(object->key);
    return write_struct({.struct_size = 0,
                         .text = object->text.c_str(),
                         .entry = object->entry.c_str(),
                         .type = kernel.name,
                         .summary = kernel.summary,
                         .geometry = geometry_of(kernel.geometry(object->key)),
                         .parameter_count = std::int32_t(object->params.size()),
                         .min_compute = instructions_of(object->key).compute,
                         .bytes_read = cost.bytes_read,
                         .bytes_written = cost.bytes_written,
                         .operations = cost.operations,
                         .error_bound = error_bound(object->key)},
                        info, "lathe_key_info");
  });
}

lathe_status lathe_key_get_parameter(const lathe_key* key, std::int32_t index,
                                     lathe_parameter* parameter) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const KeyObject* object, find<KeyObject>(key));
    if (index < 0 || std::size_t(index) >= object->params.size())
      return unknown_number("parameter", index);
    const Param& param = object->params[std::size_t(index)];
    return write_struct({.struct_size = 0,
                         .name = param.name,
                         .bytes = param.bytes,
                         .access = std::int32_t(param.access) + 1,
                         .element = std::int32_t(param.element),
                         .alignment = param.alignment,
                         .per_position = param.per_position,
                         .may_alias = param.may_alias,
                         .scratch = param.scratch,
                         .per_page = param.per_page,
                         .reserved = 0},
                        parameter, "lathe_parameter");
  });
}

lathe_status lathe_compilers_open(const lathe_compiler_options* options,
                                  lathe_compilers** compilers) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(compilers);
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_compiler_options"));
    const Environment environment = read_environment();
    CompilerPaths paths = {.nvrtc = given.nvrtc ? given.nvrtc : environment.nvrtc,
                           .llvm = given.llvm ? given.llvm : environment.llvm};
    LATHE_ASSIGN(*compilers, open_handle(std::make_unique<CompilersObject>(std::move(paths))));
    return {};
  });
}

lathe_status lathe_compilers_close(lathe_compilers* compilers) {
  return guarded([&] { return close<CompilersObject>(compilers); });
}

lathe_status lathe_compilers_get_version(lathe_compilers* compilers, std::int32_t route,
                                         const char** version) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(version);
    LATHE_ASSIGN(CompilersObject * object, find<CompilersObject>(compilers));
    LATHE_ASSIGN(const Route by, route_of(route));
    LATHE_ASSIGN(const std::string words, object->compilers.version(by));
    const std::lock_guard lock(object->mutex);
    std::string& kept = object->versions[std::size_t(by)];
    if (kept.empty()) kept = words;
    *version = kept.c_str();
    return {};
  });
}

lathe_status lathe_ptx_emit(lathe_compilers* compilers, const lathe_key* key, const char* target,
                            std::int32_t route, lathe_ptx** ptx) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(target);
    LATHE_NOT_NULL(ptx);
    LATHE_ASSIGN(const CompilersObject* with, find<CompilersObject>(compilers));
    LATHE_ASSIGN(const KeyObject* of, find<KeyObject>(key));
    LATHE_ASSIGN(const Target machine, parse_target(target));
    auto object = std::make_unique<PtxObject>();
    if (route == LATHE_ROUTE_DEFAULT) {
      LATHE_ASSIGN(object->ptx, emit_first(of->key, machine, default_routes(), with->compilers));
    } else {
      LATHE_ASSIGN(const Route by, route_of(route));
      LATHE_ASSIGN(object->ptx, emit(of->key, machine, by, with->compilers));
    }
    object->target = machine.name();
    LATHE_ASSIGN(*ptx, open_handle(std::move(object)));
    return {};
  });
}

lathe_status lathe_ptx_close(lathe_ptx* ptx) {
  return guarded([&] { return close<PtxObject>(ptx); });
}

lathe_status lathe_ptx_get_info(const lathe_ptx* ptx, lathe_ptx_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const PtxObject* object, find<PtxObject>(ptx));
    const Ptx& made = object->ptx;
    return write_struct({.struct_size = 0,
                         .text = made.text.c_str(),
                         .text_bytes = made.text.size(),
                         .entry = made.entry.c_str(),
                         .target = object->target.c_str(),
                         .compiler = made.compiler.c_str(),
                         .geometry = geometry_of(made.geometry),
                         .route = number_of(made.route),
                         .milliseconds = made.milliseconds},
                        info, "lathe_ptx_info");
  });
}
