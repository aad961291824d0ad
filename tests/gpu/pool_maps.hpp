// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maps, gradients and codes of pooling layers, on the host and on the device.

#include <algorithm>
#include <string>

#include "gpu/device_buffer.hpp"
#include "gpu/harness.hpp"

namespace stash::gpu {

/// Values of which some are equal, and all kinds of special ones.
inline test::tensor random_map(dtype type, std::int64_t count, test::generator& random) {
  test::tensor t = random.make(type, count);
  for (std::uint32_t& bits : t.bits) {
    if (random.below(4) == 0) bits = type == dtype::f32 ? 0x3f800000 : type == dtype::f16 ? 0x3c00 : 0x3f80;
  }
  return t;
}

/// Gradients whose sums have the same bits on every processor. All NaN are one, because which of two a sum
/// keeps is up to the processor; and large values are positive, so that no sum makes a NaN of its own.
inline test::tensor random_gradients(dtype type, std::int64_t count, test::generator& random) {
  struct special {
    std::uint32_t sign, infinity, large, nan;
  };
  const special s = type == dtype::f32   ? special{0x80000000, 0x7f800000, 0x7a000000, 0x7fc01234}
                    : type == dtype::f16 ? special{0x8000, 0x7c00, 0x7c00, 0x7e05}
                                         : special{0x8000, 0x7f80, 0x7a00, 0x7fc5};
  test::tensor t = random_map(type, count, random);
  for (std::uint32_t& bits : t.bits) {
    const std::uint32_t magnitude = bits & ~s.sign;
    if (magnitude >= s.large) bits = magnitude > s.infinity ? s.nan : magnitude;
  }
  return t;
}

/// A map of a layer, on both sides. In NHWC, pixels may have gaps between them.
struct pool_map {
  shape dims;
  tensor_pair pair;

  pool_map(buffer_mode mode, dtype type, const shape& map_dims, std::int64_t gap)
      : dims(map_dims), pair(mode, type, map_dims.elements(), {map_dims.inner(), gap, 0}) {}
  tensor_view on_host() const { return with_dims(pair.on_host()); }
  tensor_view on_device() const { return with_dims(pair.on_device()); }
  tensor_view with_dims(tensor_view view) const {
    view.dims = dims;
    return view;
  }
};

/// Encoded bytes on both sides.
struct coded {
  test::buffer host;
  device_buffer there;
  encode_report host_report{};
  device_report report;

  coded(buffer_mode mode, std::size_t bytes) : host(bytes), there(mode, bytes), report(mode) {}
  encoded_view host_out() { return {host.data(), host.size(), nullptr, &host_report}; }
  encoded_view device_out() const { return {there.data(), there.size(), nullptr, report.data()}; }
  const_encoded_view host_in() { return {host.data(), host.size(), nullptr, &host_report}; }
  const_encoded_view device_in() const { return {there.data(), there.size(), nullptr, report.data()}; }
  std::vector<std::uint8_t> host_bytes() const { return {host.data(), host.data() + host.size()}; }

  void expect_same(const std::string& what) const {
    expect_same_bytes(there.read(), host_bytes(), what);
    there.expect_guards(what);
    expect_same_report(what);
  }
  void expect_same_report(const std::string& what) const {
    const encode_report found = report.read();
    expect_equal(found.status, host_report.status, "status map_dims " + what);
    expect_equal(found.slot_bytes, host_report.slot_bytes, "slot_bytes map_dims " + what);
  }
  /// The device gets the host's bytes, some of them changed.
  void damage(test::generator& random, bool really) {
    for (std::uint32_t changes = really ? random.below(10) : 0; changes > 0 && host.size() > 0; --changes)
      host.data()[random.below(host.size())] = static_cast<std::uint8_t>(random.below(256));
    there.write(host_bytes());
    host_report.status = status_ok;
    report.write(host_report);
  }
};

}  // namespace stash::gpu
