// Owns the tests' own way to a GPU: the few driver calls that run one kernel from PTX text. Apart
// from the library's runtime, so that kernels can be tested without trusting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/target.h"

namespace lathe::testing {

class Gpu {
 public:
  // The first GPU of this machine, or why there is none.
  static Result<Gpu*> first();
  ~Gpu();

  const Target& target() const { return target_; }

  // Device memory, freed with the Gpu or by free().
  Result<std::uint64_t> allocate(std::size_t bytes);
  void free(std::uint64_t address);
  Result<void> write(std::uint64_t to, std::span<const std::byte> from);
  Result<void> read(std::span<std::byte> to, std::uint64_t from);

  // Loads the PTX, runs its entry point once and waits for it.
  Result<void> run(const std::string& ptx, const std::string& entry, const Geometry& geometry,
                   std::span<const std::uint64_t> pointers);

 private:
  struct Driver;
  Gpu() = default;
  Result<void> open();
  Result<void> checked(int status, const char* call) const;

  std::unique_ptr<Driver> driver_;
  Target target_;
};

// A device buffer between marked bytes, aligned to no more than `alignment`.
class GpuBuffer {
 public:
  static Result<GpuBuffer> make(Gpu& gpu, std::span<const std::byte> contents,
                                std::size_t alignment);
  GpuBuffer(GpuBuffer&& other) noexcept;
  GpuBuffer& operator=(GpuBuffer&&) = delete;
  ~GpuBuffer();

  std::uint64_t address() const { return base_ + offset_; }
  // What the buffer holds now; an error if a marked byte beside it has changed.
  Result<std::vector<std::byte>> contents() const;

 private:
  GpuBuffer(Gpu& gpu, std::uint64_t base, std::size_t offset, std::size_t size)
      : gpu_(&gpu), base_(base), offset_(offset), size_(size) {}

  Gpu* gpu_;
  std::uint64_t base_;
  std::size_t offset_, size_;
};

}  // namespace lathe::testing
