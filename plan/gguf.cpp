// Owns opening model files and the typed look-ups over their metadata.
#include "lathe/plan/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "plan/gguf_parser.h"
#include "plan/p64_parser.h"

namespace lathe {
namespace {

Error io_error(const std::string& path, std::string_view what, int number) {
  return Error{
      number == ENOENT ? Code::not_found : Code::io,
      fmt::format("cannot {} '{}': {}", what, path, std::generic_category().message(number)),
      {}};
}

// A private read-only mapping of a whole file.
class FileMap {
 public:
  FileMap() = default;
  FileMap(FileMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  FileMap& operator=(FileMap&&) = delete;
  ~FileMap() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  static Result<FileMap> open(const std::string& path) {
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return io_error(path, "open", errno);
    auto result = map(descriptor, path);
    ::close(descriptor);
    return result;
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static Result<FileMap> map(int descriptor, const std::string& path) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return io_error(path, "inspect", errno);
    if (!S_ISREG(status.st_mode)) {
      return Error{Code::invalid_argument, fmt::format("'{}' is not a regular file", path), {}};
    }
    FileMap map;
    if (status.st_size == 0) return map;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (start == MAP_FAILED) return io_error(path, "map", errno);
    map.bytes_ = {static_cast<const std::byte*>(start), size};
    return map;
  }

  std::span<const std::byte> bytes_;
};

class ParsedGgufFile final : public GgufFile {
 public:
  ParsedGgufFile(std::string path, FileMap map, std::span<const std::byte> bytes,
                 GgufContents contents)
      : path_(std::move(path)),
        map_(std::move(map)),
        bytes_(bytes),
        contents_(std::move(contents)) {}

  const std::string& path() const override { return path_; }
  const FileFacts& facts() const override { return contents_.facts; }
  std::span<const GgufTensor> tensors() const override { return contents_.tensors; }

  const GgufTensor* tensor(std::string_view name) const override {
    const auto found = contents_.tensor_by_name.find(name);
    return found == contents_.tensor_by_name.end() ? nullptr : &contents_.tensors[found->second];
  }

  std::span<const std::byte> data(const GgufTensor& tensor) const override {
    return bytes_.subspan(static_cast<std::size_t>(tensor.offset),
                          static_cast<std::size_t>(tensor.bytes));
  }

  const GgufValue* value(std::string_view key) const override {
    const auto found = contents_.values.find(std::string(key));
    return found == contents_.values.end() ? nullptr : &found->second;
  }

 private:
  std::string path_;
  FileMap map_;
  std::span<const std::byte> bytes_;
  GgufContents contents_;
};

Result<std::shared_ptr<const GgufFile>> parse(std::string name, FileMap map,
                                              std::span<const std::byte> bytes,
                                              Integrity integrity) {
  // The one place where the reader allocates in proportion to the file.
  try {
    auto contents = is_p64(bytes) ? parse_p64(bytes, integrity) : parse_gguf(bytes);
    if (!contents) return std::move(contents).error().with("file", name);
    return std::shared_ptr<const GgufFile>(std::make_shared<ParsedGgufFile>(
        std::move(name), std::move(map), bytes, std::move(contents).value()));
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "not enough memory for the file's metadata", {}};
  }
}

const char* kind_name(const GgufValue& value) {
  struct Name {
    const char* operator()(std::int64_t) const { return "an integer"; }
    const char* operator()(std::uint64_t) const { return "an integer above the signed range"; }
    const char* operator()(double) const { return "a real number"; }
    const char* operator()(bool) const { return "a boolean"; }
    const char* operator()(const std::string&) const { return "a string"; }
    const char* operator()(const GgufArray&) const { return "an array"; }
  };
  return std::visit(Name{}, value);
}

Result<const GgufValue*> find(const GgufFile& file, std::string_view key) {
  if (const GgufValue* value = file.value(key)) return value;
  return Error{Code::not_found,
               fmt::format("the metadata key '{}' is missing", key),
               {{"file", file.path()}}};
}

Error wrong_kind(const GgufFile& file, std::string_view key, const GgufValue& value,
                 std::string_view wanted) {
  return Error{Code::corrupt_file,
               fmt::format("the metadata key '{}' holds {}, not {}", key, kind_name(value), wanted),
               {{"file", file.path()}}};
}

template <typename T>
const std::vector<T>* find_array(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.value(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  return array == nullptr ? nullptr : std::get_if<std::vector<T>>(array);
}

}  // namespace

std::int64_t GgufTensor::rows() const {
  std::int64_t rows = 1;
  for (std::size_t d = 1; d < dims.size(); ++d) rows *= dims[d];
  return rows;
}

const char* container_name(Container container) {
  return container == Container::gguf ? "GGUF" : "P64";
}

Result<Integrity> integrity_by_name(std::string_view name) {
  if (name == "metadata") return Integrity::metadata;
  if (name == "full") return Integrity::full;
  if (name == "structure") return Integrity::structure;
  return Error{Code::invalid_argument,
               fmt::format("'{}' is no integrity; known: metadata, full, structure", name),
               {}};
}

Result<P64Weights> p64_weights_by_name(std::string_view name) {
  if (name == "as_stored") return P64Weights::as_stored;
  if (name == "q4_k_soa") return P64Weights::q4_k_soa;
  if (name == "ternary_ffn") return P64Weights::ternary_ffn;
  return Error{
      Code::invalid_argument,
      fmt::format("'{}' is no kind of weights; known: as_stored, q4_k_soa, ternary_ffn", name),
      {}};
}

const FileFacts& GgufFile::facts() const {
  static const FileFacts none;
  return none;
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::string& path,
                                                       Integrity integrity) {
  LATHE_ASSIGN(FileMap map, FileMap::open(path));
  const std::span<const std::byte> bytes = map.bytes();
  return parse(path, std::move(map), bytes, integrity);
}

Result<std::shared_ptr<const GgufFile>> GgufFile::from_bytes(std::span<const std::byte> bytes,
                                                             std::string name,
                                                             Integrity integrity) {
  return parse(std::move(name), FileMap(), bytes, integrity);
}

Result<std::int64_t> GgufFile::integer(std::string_view key) const {
  LATHE_ASSIGN(const GgufValue* value, find(*this, key));
  if (const auto* number = std::get_if<std::int64_t>(value)) return *number;
  return wrong_kind(*this, key, *value, "a signed 64-bit integer");
}

Result<double> GgufFile::real(std::string_view key) const {
  LATHE_ASSIGN(const GgufValue* value, find(*this, key));
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(value)) return static_cast<double>(*number);
  return wrong_kind(*this, key, *value, "a real number");
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  LATHE_ASSIGN(const GgufValue* value, find(*this, key));
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return wrong_kind(*this, key, *value, "a boolean");
}

Result<std::string> GgufFile::string(std::string_view key) const {
  LATHE_ASSIGN(const GgufValue* value, find(*this, key));
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  return wrong_kind(*this, key, *value, "a string");
}

const std::vector<std::string>* GgufFile::strings(std::string_view key) const {
  return find_array<std::string>(*this, key);
}

const std::vector<std::int64_t>* GgufFile::integers(std::string_view key) const {
  return find_array<std::int64_t>(*this, key);
}

const std::vector<double>* GgufFile::reals(std::string_view key) const {
  return find_array<double>(*this, key);
}

const std::vector<bool>* GgufFile::booleans(std::string_view key) const {
  return find_array<bool>(*this, key);
}

}  // namespace lathe
