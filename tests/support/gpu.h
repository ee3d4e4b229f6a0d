// Owns the tests' own way to a GPU: the few driver calls that run one kernel from PTX text. Apart
// from the library's runtime, so that kernels can be tested without trusting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/target.h"
#include "tests/support/guarded_buffer.h"

namespace lathe::testing {

class Gpu {
 public:
  // The first GPU of this machine, or why there is none.
  static Result<Gpu*> first();
  ~Gpu();

  const Target& target() const { return target_; }

  // Device memory of at least so many bytes between addresses that have none: an access there ends
  // the context. unmap() keeps it for the next that wants as much.
  struct Region {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };
  Result<Region> map(std::size_t bytes);
  void unmap(Region region);
  Result<void> write(std::uint64_t to, std::span<const std::byte> from);
  Result<void> read(std::span<std::byte> to, std::uint64_t from);

  // Loads PTX or a cubin, runs its entry point once and waits for it.
  Result<void> run(const std::string& image, const std::string& entry, const Geometry& geometry,
                   std::span<const std::uint64_t> pointers);

 private:
  struct Driver;
  Gpu() = default;
  Result<void> open();
  Result<void> checked(int status, const char* call) const;

  std::unique_ptr<Driver> driver_;
  Target target_;
  std::multimap<std::size_t, std::uint64_t> unused_;  // mapped regions by their bytes
};

// The same as a GuardedBuffer in device memory: the one end as near to addresses without memory as
// the alignment allows, marked bytes at both.
class GpuBuffer {
 public:
  static Result<GpuBuffer> make(Gpu& gpu, std::span<const std::byte> contents,
                                std::size_t alignment, Placement placement);
  GpuBuffer(GpuBuffer&& other) noexcept;
  GpuBuffer& operator=(GpuBuffer&&) = delete;
  ~GpuBuffer();

  std::uint64_t address() const { return address_; }
  // What the buffer holds now; an error if a marked byte beside it has changed.
  Result<std::vector<std::byte>> contents() const;

 private:
  GpuBuffer(Gpu& gpu, Gpu::Region region, std::uint64_t address, std::size_t size)
      : gpu_(&gpu), region_(region), address_(address), size_(size) {}

  // The marked bytes and the buffer's own, as one piece of the region.
  std::uint64_t first() const;
  std::uint64_t past() const;

  Gpu* gpu_;
  Gpu::Region region_;
  std::uint64_t address_;
  std::size_t size_;
};

}  // namespace lathe::testing
