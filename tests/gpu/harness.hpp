// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A small frame for checks on machines that have nothing but a GPU: named checks that run one after the
/// other, each ok, failed or not run, as lines of text and as JSON.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace stash::gpu {

/// What was found differs from what was expected.
class check_failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The check cannot be run here; what() says why.
class check_not_run : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws check_failed.
void expect(bool condition, const std::string& what);
void expect_equal(std::uint64_t found, std::uint64_t expected, const std::string& what);
/// Names the first byte that differs.
void expect_same_bytes(const std::vector<std::uint8_t>& found, const std::vector<std::uint8_t>& expected,
                       const std::string& what);

/// What a check tells about itself while it runs.
struct progress {
  std::string context;      ///< what is being tried; stands before the message of a failure
  std::int64_t trials = 0;  ///< how many inputs were tried
};

struct named_check {
  std::string name;
  std::function<void(progress&)> run;
};

/// A check that makes so many attempts, numbered from 0.
named_check repeated(std::string name, int times, std::function<void(std::uint32_t)> attempt);

enum class outcome : std::uint8_t { ok, failed, not_run };

const char* to_string(outcome o) noexcept;

struct check_result {
  std::string name;
  outcome what = outcome::ok;
  std::string detail;  ///< why it failed or was not run
  std::int64_t trials = 0;
  double seconds = 0;
};

/// Runs one check; every exception becomes an outcome.
check_result run_check(const named_check& check);

/// Runs all. When `device_error` (called after a check that failed) gives a text, the device can no longer be
/// used and the rest is not run. `report` is called with each result.
std::vector<check_result> run_checks(const std::vector<named_check>& checks,
                                     const std::function<std::string()>& device_error,
                                     const std::function<void(const check_result&)>& report);

/// "ok       encode/bitmap_of_f32 (30 trials, 0.12 s)".
std::string line_of(const check_result& result);
/// "12 ok, 1 failed, 2 not run".
std::string summary_of(const std::vector<check_result>& results);
/// A list of objects, one for each check.
nlohmann::ordered_json json_of(const std::vector<check_result>& results);

}  // namespace stash::gpu
