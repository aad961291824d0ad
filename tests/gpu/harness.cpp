// SPDX-License-Identifier: Apache-2.0
#include "gpu/harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace stash::gpu {

void expect(bool condition, const std::string& what) {
  if (!condition) throw check_failed(what);
}

void expect_equal(std::uint64_t found, std::uint64_t expected, const std::string& what) {
  if (found != expected) throw check_failed(fmt::format("{}: expected {}, got {}", what, expected, found));
}

void expect_same_bytes(const std::vector<std::uint8_t>& found, const std::vector<std::uint8_t>& expected,
                       const std::string& what) {
  expect_equal(found.size(), expected.size(), what + ": bytes");
  const auto differ = std::mismatch(found.begin(), found.end(), expected.begin());
  if (differ.first == found.end()) return;
  throw check_failed(fmt::format("{}: byte {} of {}: expected {:02x}, got {:02x}", what,
                                 differ.first - found.begin(), found.size(), *differ.second, *differ.first));
}

named_check repeated(std::string name, int times, std::function<void(std::uint32_t)> attempt) {
  return {std::move(name), [times, attempt = std::move(attempt)](progress& p) {
            for (int k = 0; k < times; ++k, ++p.trials) {
              p.context = fmt::format("attempt {}", k);
              attempt(static_cast<std::uint32_t>(k));
            }
          }};
}

const char* to_string(outcome o) noexcept {
  switch (o) {
    case outcome::ok:
      return "ok";
    case outcome::failed:
      return "failed";
    case outcome::not_run:
      return "not run";
  }
  return "";
}

check_result run_check(const named_check& check) {
  check_result result{check.name};
  progress p;
  const auto start = std::chrono::steady_clock::now();
  try {
    check.run(p);
  } catch (const check_not_run& reason) {
    result.what = outcome::not_run;
    result.detail = reason.what();
  } catch (const std::exception& problem) {
    result.what = outcome::failed;
    result.detail = p.context.empty() ? problem.what() : p.context + ": " + problem.what();
  }
  result.trials = p.trials;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<check_result> run_checks(const std::vector<named_check>& checks,
                                     const std::function<std::string()>& device_error,
                                     const std::function<void(const check_result&)>& report) {
  std::vector<check_result> results;
  std::string lost;
  for (const named_check& check : checks) {
    if (lost.empty()) {
      results.push_back(run_check(check));
      if (results.back().what == outcome::failed) {
        const std::string text = device_error();
        if (!text.empty()) lost = fmt::format("the device was lost in {}: {}", check.name, text);
      }
    } else {
      results.push_back({check.name, outcome::not_run, lost});
    }
    report(results.back());
  }
  return results;
}

std::string line_of(const check_result& result) {
  const std::string line = fmt::format("{:<8} {}", to_string(result.what), result.name);
  if (result.what == outcome::not_run) return line + ": " + result.detail;
  const std::string effort = fmt::format(" ({} trials, {:.2f} s)", result.trials, result.seconds);
  return line + effort + (result.detail.empty() ? "" : ": " + result.detail);
}

std::string summary_of(const std::vector<check_result>& results) {
  const auto count = [&](outcome o) {
    return std::count_if(results.begin(), results.end(), [&](const check_result& r) { return r.what == o; });
  };
  return fmt::format("{} ok, {} failed, {} not run", count(outcome::ok), count(outcome::failed),
                     count(outcome::not_run));
}

nlohmann::ordered_json json_of(const std::vector<check_result>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const check_result& r : results) {
    nlohmann::ordered_json entry{{"name", r.name}, {"result", to_string(r.what)}};
    if (r.what != outcome::not_run) {
      entry["trials"] = r.trials;
      entry["seconds"] = r.seconds;
    }
    if (!r.detail.empty()) entry["why"] = r.detail;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace stash::gpu
