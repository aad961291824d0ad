// SPDX-License-Identifier: Apache-2.0
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
#include "stash/csr.hpp"
#include "stash/encoding.hpp"

namespace stash::test {

inline constexpr execution_context device{memory_space::device};

inline tensor_view on_device(tensor_view view) {
  view.space = memory_space::device;
  return view;
}

/// Workspace of exactly this size.
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

/// Where csr_export32() writes, filled with a pattern.
struct exported_csr {
  exported_csr(dtype entry_type, std::size_t rows, std::size_t entries)
      : type(entry_type), offsets(rows + 1, 7), columns(entries, 7), values(entries * width(entry_type), 7) {}
  csr32_view view(std::size_t capacity) {
    return {offsets.data(), columns.data(), values.data(), type, static_cast<std::int64_t>(capacity)};
  }

  dtype type;
  std::vector<std::uint32_t> offsets, columns;
  std::vector<std::uint8_t> values;
};

/// The kernels export what the CPU exports, and touch no entry where there is no space for the last one.
/// Leaves the report with what the last call found.
inline void expect_export_of_cpu(const encoding& e, const const_encoded_view& input, dtype type,
                                 std::int64_t n, std::size_t nonzeros) {
  const auto rows = static_cast<std::size_t>((n + csr_row_elements - 1) / csr_row_elements);
  const exported_csr untouched(type, rows, nonzeros);
  exported_csr by_host = untouched, by_device = untouched, refused = untouched;
  csr_export32({e, by_host.view(nonzeros).type, {n}, input}, by_host.view(nonzeros), {});
  ASSERT_EQ(csr_export32({e, by_device.view(nonzeros).type, {n}, input}, by_device.view(nonzeros), device),
            -1);
  ASSERT_EQ(input.report->status, status_ok);
  ASSERT_EQ(by_device.offsets, by_host.offsets);
  ASSERT_EQ(by_device.columns, by_host.columns);
  ASSERT_EQ(by_device.values, by_host.values);
  if (nonzeros == 0) return;
  csr_export32({e, refused.view(nonzeros - 1).type, {n}, input}, refused.view(nonzeros - 1), device);
  ASSERT_EQ(input.report->status, status_capacity);
  ASSERT_EQ(refused.columns, untouched.columns);
  ASSERT_EQ(refused.values, untouched.values);
}

/// Canonical bytes of what a device has stored, by the CPU and by kernels.
inline std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n,
                                           const const_encoded_view& stored, std::size_t bytes) {
  std::vector<std::uint8_t> results[2];
  encode_report reports[2] = {};
  for (const bool on_host : {true, false}) {
    buffer out(bytes);
    encode_report& report = reports[on_host ? 0 : 1];
    canonicalise({e, type, {n}, stored}, {out.data(), out.size(), nullptr, &report},
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
