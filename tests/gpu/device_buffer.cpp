// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/harness.hpp"

namespace stash::gpu {
namespace {

constexpr std::uint8_t pattern = 0xa5;  // also that of test::buffer
constexpr std::size_t guard_bytes = 256;

std::vector<std::uint8_t> bytes_of(const test::buffer& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

}  // namespace

void need_memory(std::size_t bytes) {
  const std::uint64_t available = facts().free_bytes;
  if (available < bytes) {
    throw check_not_run(
        fmt::format("needs {} MiB of device memory, {} are free", bytes >> 20, available >> 20));
  }
}

device_buffer::device_buffer(buffer_mode mode, std::size_t size, std::size_t offset)
    : size_(size),
      front_(offset + (mode == buffer_mode::guarded ? guard_bytes : 0)),
      back_(mode == buffer_mode::guarded ? guard_bytes : 0),
      memory_(front_ + size + back_) {
  fill(memory_.data(), pattern, memory_.size(), nullptr);
  wait_for_device();
}

device_buffer::device_buffer(buffer_mode mode, const std::vector<std::uint8_t>& contents, std::size_t offset)
    : device_buffer(mode, contents.size(), offset) {
  write(contents);
}

void device_buffer::write(const std::vector<std::uint8_t>& contents) const {
  upload(data(), contents.data(), std::min(size_, contents.size()));
}

std::vector<std::uint8_t> device_buffer::read() const {
  std::vector<std::uint8_t> contents(size_);
  download(contents.data(), data(), size_);
  return contents;
}

void device_buffer::expect_guards(const std::string& what) const {
  std::vector<std::uint8_t> around(front_ + back_);
  download(around.data(), memory_.data(), front_);
  download(around.data() + front_, memory_.bytes() + front_ + size_, back_);
  expect(std::all_of(around.begin(), around.end(), [](std::uint8_t b) { return b == pattern; }),
         what + ": bytes outside the buffer were written");
}

device_report::device_report(buffer_mode mode, const encode_report& first) : buffer_(mode, sizeof first) {
  write(first);
}

encode_report device_report::read() const {
  buffer_.expect_guards("report");
  encode_report report;
  download(&report, buffer_.data(), sizeof report);
  return report;
}

void device_report::write(const encode_report& report) const {
  upload(buffer_.data(), &report, sizeof report);
}

placement random_placement(std::int64_t count, std::size_t width, test::generator& random) {
  placement where;
  where.inner = test::divisor(count, random);
  where.gap = random.below(2) == 0 ? 0 : random.below(9);
  where.offset = random.below(2) == 0 ? 0 : width * random.below(16);
  return where;
}

tensor_pair::tensor_pair(buffer_mode mode, dtype type, std::int64_t count, const placement& where)
    : type_(type),
      count_(count),
      host_(type, count, where.inner, where.gap, where.offset),
      device_(mode, host_.memory.size(), where.offset) {}

tensor_pair::tensor_pair(buffer_mode mode, const test::tensor& t, const placement& where)
    : tensor_pair(mode, t.type, t.count(), where) {
  set(t);
}

void tensor_pair::set(const test::tensor& t) {
  host_.put(t);
  device_.write(bytes_of(host_.memory));
}

void tensor_pair::copy_host_from(const tensor_pair& other) {
  host_.put({type_, other.host_bits()});
}

tensor_view tensor_pair::on_device() const {
  tensor_view view = host_.view(type_);
  view.data = device_.data();
  view.space = memory_space::device;
  return view;
}

void tensor_pair::expect_same(const std::string& what) const {
  expect_same_bytes(device_.read(), bytes_of(host_.memory), what);
  device_.expect_guards(what);
}

}  // namespace stash::gpu
