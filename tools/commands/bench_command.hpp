// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the two ways of `stash bench`, on this processor and on a device, share.

#include <string>
#include <vector>

#include "commands/bench_record.hpp"

namespace stash::tools {

struct bench_options {
  std::string filter, json, svg;
  std::string device = "cpu";
  bool all = false;
  int threads = 1;
  double seconds = 60;
};

// A median needs a middle.
inline constexpr int least_rounds = 3;
/// On a device, where a round takes little time.
inline constexpr int most_rounds = 400;

/// The numbers of the names that the filter has a match in. Throws error(invalid_argument) if it is no
/// regular expression, or leaves none; `example` is the name of a line.
std::vector<std::size_t> matching(const bench_options& o, const std::vector<std::string>& names,
                                  const std::string& example);

/// The table, line by line.
class bench_table {
 public:
  /// Prints the heading.
  explicit bench_table(const std::vector<std::string>& names);
  void print(const bench_figures& f) const;
  void print_not_run(const std::string& name, const std::string& why) const;

 private:
  std::size_t name_width_ = 0;
};

/// Prints what the columns mean, and writes the files that were asked for.
int finish(const bench_options& o, const bench_record& record);

/// `stash bench --device cuda`. Throws error(unsupported) saying what is missing if there is no device.
int run_device_bench(const bench_options& o);

}  // namespace stash::tools
