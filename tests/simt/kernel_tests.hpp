#pragma once
/// \file
/// What the tests that hold kernels against the CPU and the reference share. Device memory is ordinary memory
/// here, exactly as large as it has to be.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "format/random_tensors.hpp"
#include "simt/schedules.hpp"
#include "stash/encoding.hpp"

namespace stash::test {

inline constexpr execution_context device{memory_space::device};

inline tensor_view on_device(tensor_view view) {
  view.space = memory_space::device;
  return view;
}

/// Scratch memory of exactly this size.
struct workspace {
  explicit workspace(std::size_t bytes)
      : memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), size(bytes) {}
  ~workspace() { std::free(memory); }
  workspace(const workspace&) = delete;
  workspace& operator=(const workspace&) = delete;
  workspace_view view() const { return {memory, size}; }
  void* memory;
  std::size_t size;
};

/// Canonical bytes of what a device has stored, by the CPU and by kernels.
inline std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n,
                                           const const_encoded_view& stored, std::size_t bytes) {
  std::vector<std::uint8_t> results[2];
  encode_report reports[2] = {};
  for (const bool on_host : {true, false}) {
    buffer out(bytes);
    encode_report& report = reports[on_host ? 0 : 1];
    canonicalise(e, type, n, stored, {out.data(), out.size(), nullptr, &report},
                 on_host ? execution_context{} : device);
    EXPECT_EQ(report.status | stored.report->status, status_ok);
    EXPECT_TRUE(out.guard_is_whole());
    results[on_host ? 0 : 1] = {out.data(), out.data() + bytes};
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(std::memcmp(&reports[0], &reports[1], sizeof(encode_report)), 0);
  return results[1];
}

}  // namespace stash::test
