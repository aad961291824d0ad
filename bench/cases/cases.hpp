// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The table of what is measured: every encoding and every layer that reads or writes one, on generated maps.
/// encoders_bench and `stash bench` go through the same table.
///
/// Maps are channels-last f32 tensors of 64 channels; pooling halves height and width.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/cases/input.hpp"
#include "stash/execution.hpp"

namespace stash::bench {

struct case_setup {
  std::int64_t bytes = 0;  ///< of the dense map; a multiple of 64 KiB
  map_input input;
  execution_context context;
};

/// A call ready to be timed. `run` owns everything it works on and may be called any number of times.
struct prepared_call {
  std::function<void()> run;
  std::int64_t moved_bytes = 0;    ///< the least that has to be read and written, each byte once
  std::int64_t encoded_bytes = 0;  ///< of the stash that is written or read; 0 if there is none
  std::function<void()> one_call;  ///< of a batch: the same bytes as one large tensor; else empty
};

struct bench_case {
  std::string name;  ///< "encode/bitmap"
  /// Throws what the measured calls throw.
  std::function<prepared_call(const case_setup&)> prepare;
  std::vector<std::int64_t> sizes = {};  ///< of the dense map, where the case has its own
};

/// One line of a result: a case on an input.
struct bench_line {
  const bench_case* what = nullptr;
  map_input input;
  std::int64_t bytes = 0;  ///< of the dense map

  /// "encode/bitmap/iid_0.5/64KiB".
  std::string name() const;
  prepared_call prepare(const execution_context& context) const;
};

/// All cases. Pointers to them stay valid.
const std::vector<bench_case>& all_cases();

/// Every case on every input at 64 KiB, 1 MiB and 64 MiB; with `large` at 256 MiB and 1 GiB in place of
/// these. At 1 GiB a case with its copy takes up to 7 GiB of memory.
std::vector<bench_line> all_lines(bool large);

/// The lines that a person wants to see first: all encodings but the rarer narrow forms of bitmap and csr,
/// and all layers, at 64 MiB with half of the values zero; and bitmap and csr on every input and size.
std::vector<bench_line> selected_lines();

/// "64KiB", "64MiB", "1GiB".
std::string size_name(std::int64_t bytes);

}  // namespace stash::bench
