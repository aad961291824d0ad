// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// An encoded form in device memory with its report.

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/gpu/maps.hpp"
#include "stash/encoding.hpp"

namespace stash::gpu {

/// Calls that run in `stream` of the device.
inline execution_context on_device(void* stream) {
  return {memory_space::device, nullptr, nullptr, stream};
}

class stored_map {
 public:
  /// Space for any map of so many elements.
  stored_map(const encoding& e, dtype source, std::int64_t elements)
      : how_(e), memory_(encoded_bytes_bound(e, source, elements)), report_(sizeof(encode_report)) {
    reset(nullptr);
    wait_for_device();
  }

  /// Enqueues what an encoder expects: a report of zeros.
  void reset(void* stream) const { fill(report_.data(), 0, sizeof(encode_report), stream); }
  encoded_view write() const { return {memory_.data(), memory_.size(), nullptr, report_address()}; }
  const_encoded_view read() const { return {memory_.data(), memory_.size(), nullptr, report_address()}; }
  const encoding& how() const noexcept { return how_; }

  encode_report report() const {
    encode_report copy;
    download(&copy, report_.data(), sizeof copy);
    return copy;
  }
  /// Bytes in use, once something was encoded.
  std::uint64_t bytes() const {
    const bool sparse = how_.kind == encoding_kind::bitmap || how_.kind == encoding_kind::csr;
    return sparse ? report().slot_bytes : memory_.size();
  }
  /// Throws failure if a call has set a status.
  void verify() const {
    const std::uint32_t status = report().status;
    if (status != status_ok) throw failure(to_string(how_) + ": status " + std::to_string(status));
  }

 private:
  encode_report* report_address() const { return static_cast<encode_report*>(report_.data()); }

  encoding how_;
  memory memory_, report_;
};

using shared_store = std::shared_ptr<stored_map>;

/// Encodes, and waits.
inline shared_store stored(const encoding& e, const device_map& x, dtype type) {
  auto kept = std::make_shared<stored_map>(e, type, x.elements());
  encode(e, x.view(), kept->write(), {}, on_device(nullptr));
  wait_for_device();
  kept->verify();
  return kept;
}

/// Several of them, in the order in which they were added.
class stored_maps {
 public:
  const stored_map& add(const encoding& e, dtype source, std::int64_t elements) {
    return *stored_.emplace_back(std::make_unique<stored_map>(e, source, elements));
  }
  const stored_map& operator[](std::size_t i) const { return *stored_[i]; }

  void reset(void* stream) const {
    for (const auto& s : stored_)
      s->reset(stream);
  }
  void verify() const {
    for (const auto& s : stored_)
      s->verify();
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& s : stored_)
      sum += s->bytes();
    return sum;
  }

 private:
  std::vector<std::unique_ptr<stored_map>> stored_;
};

}  // namespace stash::gpu
