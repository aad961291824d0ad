// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where owning objects of the library take their memory from. Non-owning calls (encoding.hpp) take none.
///
/// The interface is ordered by streams, so that a device resource can hand memory out and take it back
/// without waiting: what allocate() returns may be used by work that is enqueued in `stream` afterwards, and
/// what deallocate() takes back may still be in use by work that was enqueued in `stream` before. Host
/// resources ignore the stream.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>

#include "stash/tensor_view.hpp"
#include "stash/visibility.h"

namespace stash {

/// Base class of every source of memory. Implementations must be safe to call from several threads at once.
class STASH_API memory_resource {
 public:
  virtual ~memory_resource();

  /// At least `bytes` bytes, aligned to `alignment`; never null, not even for 0 bytes.
  /// Throws error(invalid_argument) for an alignment that is no power of two, and error(out_of_memory) with
  /// the size if there is no memory, or if what the implementation returned breaks this contract (it is
  /// given back). Sizes above PTRDIFF_MAX less the alignment are refused without asking the implementation.
  void* allocate(std::size_t bytes, std::size_t alignment, void* stream = nullptr);
  /// Takes back what allocate() of this resource returned for the same size and alignment.
  void deallocate(void* data, std::size_t bytes, std::size_t alignment, void* stream = nullptr) noexcept;
  /// Of everything that this resource returns. Owning objects refuse a resource of an unknown space.
  memory_space space() const noexcept;

 protected:
  memory_resource() = default;
  memory_resource(const memory_resource&) = default;
  memory_resource& operator=(const memory_resource&) = default;

 private:
  /// `bytes` > 0, alignment a power of two. May throw, or return null if there is no memory.
  virtual void* do_allocate(std::size_t bytes, std::size_t alignment, void* stream) = 0;
  virtual void do_deallocate(void* data, std::size_t bytes, std::size_t alignment, void* stream) noexcept = 0;
  virtual memory_space do_space() const noexcept { return memory_space::host; }
};

/// Host memory of operator new. Lives as long as the program.
STASH_API memory_resource& host_memory() noexcept;

/// Memory of the current device, ordered by streams (the CUDA driver's default pool, which gives free memory
/// back to the system whenever somebody waits for the device: raise its cudaMemPoolAttrReleaseThreshold where
/// that costs time and nobody else needs the memory). Lives as long as the program.
/// allocate() throws error(unsupported) in a build without a device back end, error(device_failure) if the
/// driver refuses.
STASH_API memory_resource& device_memory() noexcept;

/// Host memory that stays where it is and is mapped into the device: for copies that run at the same time as
/// kernels. The driver promises no alignment above 256 bytes; a larger one may fail as out of memory.
/// Making and giving back a block may wait for the device. Lives as long as the program; errors as
/// device_memory().
STASH_API memory_resource& pinned_memory() noexcept;

/// Host memory of a standard memory resource, which must outlive this and everything allocated from it.
class STASH_API pmr_memory final : public memory_resource {
 public:
  /// Copies nothing: `upstream` is used as long as this lives.
  explicit pmr_memory(std::pmr::memory_resource& upstream) noexcept : upstream_(&upstream) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment, void* stream) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment, void* stream) noexcept override;

  std::pmr::memory_resource* upstream_;
};

/// Functions of a caller who has an allocator of another kind, in C for example.
struct memory_callbacks {
  void* user = nullptr;  ///< first argument of both
  /// Null if there is no memory. Must not throw.
  void* (*allocate)(void* user, std::size_t bytes, std::size_t alignment, void* stream) = nullptr;
  void (*deallocate)(void* user, void* data, std::size_t bytes, std::size_t alignment,
                     void* stream) = nullptr;
  memory_space space = memory_space::host;
};

/// A caller's functions as a memory resource.
class STASH_API callback_memory final : public memory_resource {
 public:
  /// Throws error(invalid_argument) for a null function or an unknown space.
  explicit callback_memory(const memory_callbacks& callbacks);

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment, void* stream) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment, void* stream) noexcept override;
  memory_space do_space() const noexcept override { return callbacks_.space; }

  memory_callbacks callbacks_;
};

/// Passes calls on to `upstream` (which must outlive this), counts what is out and refuses what would exceed
/// a limit. Sizes are those that were asked for.
class STASH_API counting_memory final : public memory_resource {
 public:
  /// `limit`: bytes that may be in use at one time.
  explicit counting_memory(memory_resource& upstream, std::size_t limit = SIZE_MAX) noexcept
      : upstream_(&upstream), limit_(limit) {}

  std::size_t bytes_in_use() const noexcept;   ///< allocated and not given back
  std::size_t peak_bytes() const noexcept;     ///< the most that was in use at one time
  std::size_t blocks_in_use() const noexcept;  ///< their number

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment, void* stream) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment, void* stream) noexcept override;
  memory_space do_space() const noexcept override { return upstream_->space(); }

  memory_resource* upstream_;
  std::size_t limit_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0, peak_ = 0, blocks_ = 0;
};

}  // namespace stash
