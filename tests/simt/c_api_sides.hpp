// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The same calls of the C API on the host and on a device whose memory the host cannot reach, in a stream of
/// their own: at once, and recorded and launched on other inputs. What they leave must be the same, bit by
/// bit.

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "c_api/support.hpp"
#include "format/tensor_generator.hpp"
#include "simt/device_memory.hpp"
#include "simt/recording.hpp"
#include "support/closed_memory.hpp"

namespace stash_test {

inline void expect_ok(std::int32_t status) {
  EXPECT_EQ(status, STASH_OK) << last_error();
}

class c_api_sides : public testing::Test {
 protected:
  /// Bytes on both sides, those on the device with a guard after them.
  struct bytes_of_both {
    bytes_of_both(closed_memory& memory, std::size_t bytes)
        : host(bytes), device(memory.take(bytes + guard)) {}
    stash::test::buffer host;
    std::uint8_t* device;
  };
  enum class content { values, gradients, results };
  /// A dense map.
  struct map {
    bytes_of_both bytes;
    content what;
    stash_tensor_view on_host, on_device;
  };
  /// Encoded bytes.
  struct encoded_slot {
    bytes_of_both bytes;
    bool same_offsets;  ///< false: tiles may lie elsewhere on a device
    stash_encode_report host_report;
    stash_encode_report* device_report;
    stash_encoded_view on_host, on_device;
    std::uint32_t status = 0;  ///< what the report will say on both sides
  };
  /// Bytes next to slots, and how many of them have been claimed.
  struct arena {
    bytes_of_both bytes;
    std::uint64_t host_claimed;
    std::uint64_t* device_claimed;
    stash_overflow_arena on_host, on_device;
  };

  /// Where calls are made.
  struct side {
    bool device;
    const stash_execution_context* context;
    const stash_workspace_view* workspace;

    const stash_tensor_view* operator()(const map& m) const { return device ? &m.on_device : &m.on_host; }
    const stash_encoded_view* operator()(const encoded_slot& r) const {
      return device ? &r.on_device : &r.on_host;
    }
  };
  using calls = std::function<void(const side&)>;

  c_api_sides() {
    context_.space = STASH_SPACE_DEVICE;
    context_.canonical = 1;
    context_.stream = &stream_;
    workspace_.bytes = std::size_t{1} << 16;
    workspace_.data = memory_.take(workspace_.bytes);
  }

  map& map_of(std::int32_t type, const std::vector<std::int64_t>& dims, content what,
              std::int64_t pitch = 0) {
    std::int64_t pixels = 1;
    for (std::size_t i = 0; i + 1 < dims.size(); ++i)
      pixels *= dims[i];
    const auto elements = static_cast<std::size_t>(pixels * (pitch == 0 ? dims.back() : pitch));
    const stash_tensor_view view = c_view(nullptr, type, dims, pitch);
    map& m = maps_.emplace_back(
        map{{memory_, elements * size_of(static_cast<stash::dtype>(type))}, what, view, view});
    m.on_host.data = m.bytes.host.data();
    m.on_device.data = m.bytes.device;
    m.on_device.space = STASH_SPACE_DEVICE;
    return m;
  }
  encoded_slot& slot_of(std::size_t bytes, arena* overflow_to = nullptr) {
    const stash_encoded_view view = STASH_INIT(stash_encoded_view);
    auto* const report = reinterpret_cast<stash_encode_report*>(memory_.take(sizeof(stash_encode_report)));
    encoded_slot& r =
        slots_.emplace_back(encoded_slot{{memory_, bytes}, overflow_to == nullptr, {}, report, view, view});
    r.on_host.data = r.bytes.host.data();
    r.on_device.data = r.bytes.device;
    r.on_host.bytes = r.on_device.bytes = bytes;
    r.on_host.report = &r.host_report;
    r.on_device.report = r.device_report;
    if (overflow_to != nullptr) {
      r.on_host.overflow = &overflow_to->on_host;
      r.on_device.overflow = &overflow_to->on_device;
    }
    return r;
  }
  encoded_slot& slot_for(const stash_encoding& e, std::int32_t type, std::int64_t elements) {
    std::size_t bytes = 0;
    expect_ok(stash_encoded_bytes_bound(&e, type, elements, &bytes));
    return slot_of(bytes);
  }
  arena& arena_of(std::size_t bytes) {
    const stash_overflow_arena none = STASH_INIT(stash_overflow_arena);
    auto* const claimed = reinterpret_cast<std::uint64_t*>(memory_.take(sizeof(std::uint64_t)));
    arena& a = arenas_.emplace_back(arena{{memory_, bytes}, 0, claimed, none, none});
    a.on_host.data = a.bytes.host.data();
    a.on_device.data = a.bytes.device;
    a.on_host.bytes = a.on_device.bytes = bytes;
    a.on_host.claimed = &a.host_claimed;
    a.on_device.claimed = a.device_claimed;
    return a;
  }

  /// Makes the calls in every way. `allocates`: those on the host do.
  void expect_same_on_both_sides(const calls& make, bool allocates = false) {
    start_anew();
    make(host_side());
    make_on_device(make, allocates);
    expect_same("at once");

    start_anew();
    const simt::recording recorded(&stream_, [&] { make(device_side()); });
    expect_untouched();
    for (const char* how : {"recorded", "recorded, launched again"}) {
      start_anew();
      make(host_side());
      recorded.launch();
      expect_same(how);
    }
  }

  stash_encode_report report_on_device(const encoded_slot& r) { return memory_.read(r.device_report); }
  std::uint64_t claimed_on_device(const arena& a) { return memory_.read(a.device_claimed); }

  closed_memory memory_;
  char stream_ = 0;  // streams are names
  stash_execution_context context_ = STASH_INIT(stash_execution_context);
  stash_workspace_view workspace_ = STASH_INIT(stash_workspace_view);

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::uint8_t pattern = 0xa5;

  static side host_side() { return {false, nullptr, nullptr}; }
  side device_side() const { return {true, &context_, &workspace_}; }

  void make_on_device(const calls& make, bool allocates) {
    const simt::device_calls before = simt::calls_so_far();
    const std::int64_t host = memory_.host_allocations();
    make(device_side());
    const std::int64_t host_after = memory_.host_allocations();
    const simt::device_calls after = simt::calls_so_far();
    EXPECT_GT(after.launches, before.launches);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.copies, before.copies);
    EXPECT_EQ(after.waits, before.waits);
    EXPECT_EQ(host_after > host, allocates);
  }

  /// Other inputs, nothing written yet, reports as encoders want them.
  void start_anew() {
    for (const map& m : maps_) {
      forget(m.bytes);
      if (m.what == content::results) continue;
      fill(m);
      memory_.write(m.bytes.device, m.bytes.host.data(), m.bytes.host.size());
    }
    for (encoded_slot& r : slots_) {
      forget(r.bytes);
      r.host_report = {};
      memory_.clear(r.device_report, sizeof(stash_encode_report));
    }
    for (arena& a : arenas_) {
      forget(a.bytes);
      a.host_claimed = 0;
      memory_.clear(a.device_claimed, sizeof(std::uint64_t));
    }
  }
  void forget(const bytes_of_both& b) {
    const std::vector<std::uint8_t> nothing(b.host.size() + guard, pattern);
    std::memcpy(b.host.data(), nothing.data(), b.host.size());
    memory_.write(b.device, nothing.data(), nothing.size());
  }
  /// Gradients are numbers whose sums have the same bits on every processor.
  void fill(const map& m) {
    struct number {
      std::uint32_t kept, set;  // sign and mantissa; exponents of 0.5 to 1
    };
    const auto type = static_cast<stash::dtype>(m.on_host.type);
    const number numbers = type == stash::dtype::f32   ? number{0x807fffff, 0x3f000000}
                           : type == stash::dtype::f16 ? number{0x83ff, 0x3800}
                                                       : number{0x807f, 0x3f00};
    const std::size_t size = size_of(type), count = m.bytes.host.size() / size;
    const stash::test::tensor t = random_.make(type, static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits = t.bits[i];
      if (m.what == content::gradients) bits = (bits & numbers.kept) | numbers.set;
      std::memcpy(m.bytes.host.data() + i * size, &bits, size);
    }
  }

  std::vector<std::uint8_t> on_device(const bytes_of_both& b) {
    std::vector<std::uint8_t> found(b.host.size() + guard);
    memory_.read(found.data(), b.device, found.size());
    for (std::size_t i = b.host.size(); i < found.size(); ++i)
      EXPECT_EQ(found[i], pattern) << "written past the end";
    found.resize(b.host.size());
    return found;
  }
  static std::vector<std::uint8_t> on_host(const bytes_of_both& b) {
    return {b.host.data(), b.host.data() + b.host.size()};
  }

  void expect_same(const std::string& how) {
    SCOPED_TRACE(how);
    for (std::size_t i = 0; i < maps_.size(); ++i)
      EXPECT_EQ(on_device(maps_[i].bytes), on_host(maps_[i].bytes)) << "map " << i;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const encoded_slot& r = slots_[i];
      const stash_encode_report found = report_on_device(r);
      EXPECT_EQ(found.status, r.status) << "slot " << i;
      EXPECT_EQ(r.host_report.status, r.status) << "slot " << i;
      EXPECT_EQ(found.nonzeros, r.host_report.nonzeros) << "slot " << i;
      std::vector<std::uint8_t> bytes = on_device(r.bytes), expected = on_host(r.bytes);
      if (!r.same_offsets) continue;
      EXPECT_EQ(std::memcmp(&found, &r.host_report, sizeof found), 0) << "report " << i;
      // What encoders leave after the bytes in use is theirs. Layers and masks use all.
      if (found.slot_bytes != 0) {
        bytes.resize(found.slot_bytes);
        expected.resize(found.slot_bytes);
      }
      EXPECT_EQ(bytes, expected) << "slot " << i;
    }
    for (const arena& a : arenas_)
      on_device(a.bytes);
  }
  /// What is recorded has not happened.
  void expect_untouched() {
    for (const map& m : maps_) {
      if (m.what == content::results) expect_pattern(m.bytes);
    }
    for (const encoded_slot& r : slots_) {
      expect_pattern(r.bytes);
      EXPECT_EQ(report_on_device(r).slot_bytes, 0U);
    }
  }
  void expect_pattern(const bytes_of_both& b) {
    EXPECT_EQ(on_device(b), std::vector<std::uint8_t>(b.host.size(), pattern));
  }

  // Calls keep addresses of these.
  std::deque<map> maps_;
  std::deque<encoded_slot> slots_;
  std::deque<arena> arenas_;
  stash::test::generator random_{91};
};

}  // namespace stash_test
