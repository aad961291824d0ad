// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the checks and measurements need of a device besides Stash: memory, streams, graphs, a stopwatch.
/// Implemented with the CUDA runtime (cuda_device.cpp) and, so that checks and measurements are themselves
/// tested where there is no GPU, with ordinary memory and the emulated kernels (tests/gpu). A program links
/// one of them.
///
/// Every call of the runtime is checked: what fails throws `failure`, with the call and the runtime's words.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace stash::gpu {

class failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Empty if there is a device that can be used; else why not.
std::string why_no_device();

/// True if kernels run in the emulator: what takes a GPU seconds is then made smaller.
bool is_emulated();

struct device_facts {
  std::string name;
  std::string compute_capability;  ///< "9.0"
  std::string driver, runtime;     ///< "13.0"
  std::string built_for;           ///< what the program's kernels were compiled for: "sm_80, sm_90"
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t l2_bytes = 0;
  int multiprocessors = 0;
  bool ecc = false;
};

/// Of the device that the program uses: the first one.
device_facts facts();

/// Memory of the device, of exactly this size, at a multiple of 256.
class memory {
 public:
  explicit memory(std::size_t bytes);

  void* data() const noexcept { return data_.get(); }
  std::uint8_t* bytes() const noexcept { return static_cast<std::uint8_t*>(data_.get()); }
  std::size_t size() const noexcept { return size_; }

 private:
  struct release {
    void operator()(void* data) const noexcept;
  };
  std::unique_ptr<void, release> data_;
  std::size_t size_;
};

/// Memory of the host that kernels can reach at the same address, of exactly this size, at a multiple of 16.
class pinned {
 public:
  explicit pinned(std::size_t bytes);

  std::uint8_t* bytes() const noexcept { return static_cast<std::uint8_t*>(data_.get()); }
  std::size_t size() const noexcept { return size_; }

 private:
  struct release {
    void operator()(void* data) const noexcept;
  };
  std::unique_ptr<void, release> data_;
  std::size_t size_;
};

/// Work in one stream runs in the order in which it was enqueued; streams do not wait for each other.
class stream {
 public:
  stream();

  /// For execution_context::stream.
  void* handle() const noexcept { return handle_.get(); }
  void wait() const;

 private:
  struct release {
    void operator()(void* handle) const noexcept;
  };
  std::unique_ptr<void, release> handle_;
};

/// Waits for everything that was enqueued on the device. Throws what a kernel did wrong.
void wait_for_device();

// Copies between the host and the device. Both wait for the device first, and for the copy.
void upload(void* to_device, const void* from_host, std::size_t bytes);
void download(void* to_host, const void* from_device, std::size_t bytes);

/// How much memory the pool of device_memory()() takes from the device.
class pool_watch {
 public:
  /// Waits for the device; what the pool has unused goes back first.
  pool_watch();
  /// The most at one time since then, less what it had.
  std::uint64_t most_bytes() const;
  /// The same of what the host had not freed.
  std::uint64_t most_used_bytes() const;

 private:
  std::uint64_t before_ = 0, used_before_ = 0;
};

// Enqueued in a stream (null: the default stream).
void fill(void* device, std::uint8_t value, std::size_t bytes, void* stream);
void copy_on_device(void* to, const void* from, std::size_t bytes, void* stream);

/// Work that was recorded once and can be launched many times.
class graph {
 public:
  /// Records what `enqueue` enqueues in the stream, in the mode that also watches other threads. Throws if it
  /// does anything that cannot be recorded, such as waiting or allocating.
  graph(const stream& in, const std::function<void()>& enqueue);
  /// Enqueues the recorded work in the stream, or in another one.
  void launch();
  void launch_in(void* stream);

 private:
  struct recorded;
  std::shared_ptr<recorded> recorded_;
};

/// The time between two points of a stream, by the device's clock.
class stopwatch {
 public:
  stopwatch();
  void start(void* stream);
  void stop(void* stream);
  /// Waits for stop().
  double seconds() const;

 private:
  struct marks;
  std::shared_ptr<marks> marks_;
};

}  // namespace stash::gpu
