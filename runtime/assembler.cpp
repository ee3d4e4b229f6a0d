// Owns both assemblers and the choice between them.
#include "runtime/assembler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

#include "codegen/dynamic_library.h"

namespace lathe {
namespace {

// The part of nvJitLink's interface that Lathe uses. The plain names are exported since 12.0 and
// keep their meaning, so one declaration serves every version of the library.
struct NvJitLink {
  using Handle = void*;
  static constexpr int kSuccess = 0;
  static constexpr int kInputPtx = 2;
  int (*create)(Handle*, std::uint32_t, const char**) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add_data)(Handle, int, const void*, std::size_t, const char*) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*cubin_size)(Handle, std::size_t*) = nullptr;
  int (*cubin)(Handle, void*) = nullptr;
  int (*error_log_size)(Handle, std::size_t*) = nullptr;
  int (*error_log)(Handle, char*) = nullptr;
  int (*version)(unsigned*, unsigned*) = nullptr;

  bool bind(const DynamicLibrary& library) {
    return library.bind(create, "nvJitLinkCreate") && library.bind(destroy, "nvJitLinkDestroy") &&
           library.bind(add_data, "nvJitLinkAddData") &&
           library.bind(complete, "nvJitLinkComplete") &&
           library.bind(cubin_size, "nvJitLinkGetLinkedCubinSize") &&
           library.bind(cubin, "nvJitLinkGetLinkedCubin") &&
           library.bind(error_log_size, "nvJitLinkGetErrorLogSize") &&
           library.bind(error_log, "nvJitLinkGetErrorLog") &&
           library.bind(version, "nvJitLinkVersion");
  }
};

class NvJitLinkAssembler final : public Assembler {
 public:
  NvJitLinkAssembler(DynamicLibrary library, const NvJitLink& api, unsigned major, unsigned minor)
      : library_(std::move(library)),
        api_(api),
        major_(int(major)),
        name_(fmt::format("nvJitLink {}.{} ({})", major, minor, library_.name())) {}

  const std::string& name() const override { return name_; }
  std::string library() const override { return library_.path(); }
  int major() const { return major_; }

  bool knows(const Target& target) const {
    NvJitLink::Handle handle = nullptr;
    const std::string arch = "-arch=" + target.name();
    const char* options[] = {arch.c_str()};
    const bool created = api_.create(&handle, 1, options) == NvJitLink::kSuccess;
    if (handle) api_.destroy(&handle);
    return created;
  }

  Result<Cubin> assemble(std::string_view ptx, const Target& target) const override {
    NvJitLink::Handle handle = nullptr;
    const std::string arch = "-arch=" + target.name();
    const char* options[] = {arch.c_str()};
    if (api_.create(&handle, 1, options) != NvJitLink::kSuccess) {
      if (handle) api_.destroy(&handle);
      return Error{Code::compile, fmt::format("{} does not know {}.", name_, target.name()), {}}
          .with("hint",
                "use a newer libnvJitLink, or LATHE_NVJITLINK=off for the driver's assembler");
    }
    Result<Cubin> result = link(handle, ptx);
    api_.destroy(&handle);
    return result;
  }

 private:
  Result<Cubin> link(NvJitLink::Handle handle, std::string_view ptx) const {
    // The library reads text up to a terminating null, which it wants counted.
    const std::string text(ptx);
    int status =
        api_.add_data(handle, NvJitLink::kInputPtx, text.c_str(), text.size() + 1, "lathe");
    if (status == NvJitLink::kSuccess) status = api_.complete(handle);
    std::size_t size = 0;
    if (status == NvJitLink::kSuccess) status = api_.cubin_size(handle, &size);
    Cubin cubin(status == NvJitLink::kSuccess ? size : 0);
    if (status == NvJitLink::kSuccess) status = api_.cubin(handle, cubin.data());
    if (status == NvJitLink::kSuccess) return cubin;

    std::string log;
    if (api_.error_log_size(handle, &size) == NvJitLink::kSuccess && size > 1) {
      log.resize(size);
      if (api_.error_log(handle, log.data()) != NvJitLink::kSuccess) log.clear();
      log.resize(std::min(log.find('\0'), log.size()));
    }
    if (log.empty()) log = fmt::format("status {}", status);
    return assembly_error(name_, log, ptx);
  }

  DynamicLibrary library_;
  NvJitLink api_;
  int major_;
  std::string name_;
};

class DriverAssembler final : public Assembler {
 public:
  explicit DriverAssembler(const Context& context)
      : context_(context),
        name_(fmt::format("driver {}", driver_version_text(context.driver_version()))) {}

  const std::string& name() const override { return name_; }

  // The linker, not cuLibraryLoadData: it hands out the cubin, which is what the disk cache keeps.
  Result<Cubin> assemble(std::string_view ptx, const Target& target) const override {
    LATHE_ASSIGN(ContextScope scope, context_.enter());
    const Driver& driver = context_.driver();
    std::array<char, 16384> log = {};
    const auto compute =
        target.compute + (target.accelerated ? int(CU_COMPUTE_ACCELERATED_TARGET_BASE) : 0);
    CUjit_option options[] = {CU_JIT_TARGET, CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {reinterpret_cast<void*>(std::intptr_t{compute}), log.data(),
                      reinterpret_cast<void*>(log.size())};
    CUlinkState state = nullptr;
    LATHE_DRIVER_CALL(driver, cuLinkCreate, 3, options, values, &state);

    std::string text(ptx);
    void* image = nullptr;
    std::size_t size = 0;
    const char* call = "cuLinkAddData";
    CUresult status = driver.cuLinkAddData(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1,
                                           "lathe", 0, nullptr, nullptr);
    if (status == CUDA_SUCCESS) {
      call = "cuLinkComplete";
      status = driver.cuLinkComplete(state, &image, &size);
    }
    Cubin cubin;
    if (status == CUDA_SUCCESS) {
      const auto* bytes = static_cast<const std::byte*>(image);
      cubin.assign(bytes, bytes + size);
    }
    driver.cuLinkDestroy(state);
    if (status == CUDA_SUCCESS) return cubin;
    log.back() = '\0';
    const bool about_ptx = log.front() != '\0';
    if (!about_ptx) return driver_error(driver, status, call);
    return assembly_error(name_, log.data(), ptx).with("call", call);
  }

 private:
  const Context& context_;
  std::string name_;
};

// The line of PTX that the log complains about first: "..., line 12; error : ...".
std::optional<int> line_in_log(std::string_view log) {
  const std::string_view mark = ", line ";
  const auto at = log.find(mark);
  if (at == log.npos) return std::nullopt;
  const char* begin = log.data() + at + mark.size();
  int line = 0;
  if (std::from_chars(begin, log.data() + log.size(), line).ec != std::errc{}) return std::nullopt;
  return line;
}

std::string lines_around(std::string_view text, int line) {
  constexpr int kContext = 2;
  std::string out;
  int number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (number >= line - kContext && number <= line + kContext) {
      out += fmt::format("{}{:>5} | {}", out.empty() ? "" : "\n", number,
                         text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return out;
}

Result<std::unique_ptr<NvJitLinkAssembler>> load_nvjitlink(const std::string& path) {
  std::vector<std::string> names = {"libnvJitLink.so.13", "libnvJitLink.so.12"};
  if (!path.empty()) names = {path};
  LATHE_ASSIGN(DynamicLibrary library, DynamicLibrary::open(names));
  NvJitLink api;
  unsigned major = 0, minor = 0;
  if (!api.bind(library) || api.version(&major, &minor) != NvJitLink::kSuccess) {
    return Error{
        Code::not_found, fmt::format("{} is not an nvJitLink library.", library.name()), {}};
  }
  library.leak();  // what it allocated at its start is not given back when it is unloaded
  return std::make_unique<NvJitLinkAssembler>(std::move(library), api, major, minor);
}

}  // namespace

Error assembly_error(std::string_view assembler, std::string_view log, std::string_view ptx) {
  while (!log.empty() && log.back() == '\n') log.remove_suffix(1);
  Error error{Code::compile, fmt::format("{} refused the PTX.", assembler), {}};
  error.details.push_back({"log", std::string(log)});
  if (const auto line = line_in_log(log)) {
    error.details.push_back({"ptx", lines_around(ptx, *line)});
  }
  if (log.find("nsupported .version") != log.npos) {
    error.details.push_back(
        {"hint", "the assembler is older than the PTX: use a newer libnvJitLink or driver"});
  }
  return error;
}

Result<std::unique_ptr<Assembler>> open_nvjitlink(const std::string& path) {
  LATHE_ASSIGN(std::unique_ptr<Assembler> assembler, load_nvjitlink(path));
  return assembler;
}

std::unique_ptr<Assembler> driver_assembler(const Context& context) {
  return std::make_unique<DriverAssembler>(context);
}

Result<std::unique_ptr<Assembler>> choose_assembler(const Context& context, const std::string& path,
                                                    std::vector<std::string>& notes) {
  if (path == "off") return driver_assembler(context);
  auto linked = load_nvjitlink(path);
  if (!linked) {
    // Asked for by name, it must be there; otherwise the driver does as well.
    if (!path.empty()) return std::move(linked).error().with("hint", "see LATHE_NVJITLINK");
    notes.push_back("assembler: the driver, as there is no nvJitLink");
    return driver_assembler(context);
  }
  const NvJitLinkAssembler& assembler = *linked.value();
  if (assembler.major() > context.driver_version() / 1000) {
    notes.push_back(fmt::format("assembler: the driver, as {} makes code for later drivers than {}",
                                assembler.name(), driver_version_text(context.driver_version())));
    return driver_assembler(context);
  }
  if (!assembler.knows(context.target())) {
    notes.push_back(fmt::format("assembler: the driver, as {} does not know {}", assembler.name(),
                                context.target().name()));
    return driver_assembler(context);
  }
  return std::unique_ptr<Assembler>(std::move(linked).value());
}

}  // namespace lathe
