// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Device memory for one tensor of a check.

#include <cstdint>
#include <vector>

#include "bench/gpu/device.hpp"
#include "format/tensor_generator.hpp"
#include "stash/encoding.hpp"
#include "stash/memory.hpp"

namespace stash::gpu {

enum class buffer_mode : std::uint8_t {
  exact,    ///< ends where the data end, for tools that watch the bounds of allocations
  guarded,  ///< patterns around the data, which is what a program can see by itself
};

/// Throws check_not_run where the device has less free memory.
void need_memory(std::size_t bytes);

/// `size` bytes of device memory, `offset` bytes off a multiple of 256. Full of a pattern at first.
class device_buffer {
 public:
  device_buffer(buffer_mode mode, std::size_t size, std::size_t offset = 0);
  /// With these contents.
  device_buffer(buffer_mode mode, const std::vector<std::uint8_t>& contents, std::size_t offset = 0);

  std::uint8_t* data() const noexcept { return size_ == 0 ? nullptr : memory_.bytes() + front_; }
  std::size_t size() const noexcept { return size_; }
  void write(const std::vector<std::uint8_t>& contents) const;
  std::vector<std::uint8_t> read() const;
  /// Throws check_failed if bytes around the data have changed.
  void expect_guards(const std::string& what) const;

 private:
  std::size_t size_, front_, back_;
  memory memory_;
};

/// Memory of one of the library's resources, freed at the end.
class resource_block {
 public:
  resource_block(memory_resource& from, std::size_t bytes)
      : from_(from), bytes_(bytes), data_(from.allocate(bytes, 256)) {}
  ~resource_block() { from_.deallocate(data_, bytes_, 256); }
  resource_block(const resource_block&) = delete;
  resource_block& operator=(const resource_block&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  memory_resource& from_;
  std::size_t bytes_;
  void* data_;
};

/// A report in device memory.
class device_report {
 public:
  explicit device_report(buffer_mode mode, const encode_report& first = {});
  encode_report* data() const noexcept { return reinterpret_cast<encode_report*>(buffer_.data()); }
  encode_report read() const;
  void write(const encode_report& report) const;

 private:
  device_buffer buffer_;
};

/// Where a tensor lies in memory: pitched and unaligned, as chosen.
struct placement {
  std::int64_t inner = 1, gap = 0;
  std::size_t offset = 0;
};

/// Random, for `count` elements of this width.
placement random_placement(std::int64_t count, std::size_t width, test::generator& random);

/// The same tensor in host and in device memory.
class tensor_pair {
 public:
  tensor_pair(buffer_mode mode, dtype type, std::int64_t count, const placement& where);
  tensor_pair(buffer_mode mode, const test::tensor& t, const placement& where);

  /// Both become this tensor.
  void set(const test::tensor& t);
  /// Only on the host: the elements of the other pair.
  void copy_host_from(const tensor_pair& other);
  tensor_view on_host() const { return host_.view(type_); }
  tensor_view on_device() const;
  /// Throws check_failed unless both hold the same bytes, gaps included, and nothing around them changed.
  void expect_same(const std::string& what) const;
  /// What the device has, gaps included.
  std::vector<std::uint8_t> device_bytes() const { return device_.read(); }
  /// The bits of the elements on the host.
  std::vector<std::uint32_t> host_bits() const { return host_.take(type_, count_); }

 private:
  dtype type_;
  std::int64_t count_;
  test::placed host_;
  device_buffer device_;
};

}  // namespace stash::gpu
