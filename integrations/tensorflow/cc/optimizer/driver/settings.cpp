// SPDX-License-Identifier: Apache-2.0
#include "optimizer/driver/settings.hpp"

#include <cstring>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "extension_api.hpp"
#include "stash/c_api.h"

namespace stash_tf {

namespace {

/// Whether the core has such a format, and its values share no scale.
bool is_unscaled_format(const std::string& name) {
  for (std::size_t i = 0; i < stash_value_format_count(); ++i) {
    auto format = STASH_INIT(stash_value_format);
    if (stash_value_format_at(i, &format) == STASH_OK && name == format.name) return format.scaled == 0;
  }
  return false;
}

std::mutex settings_mutex;
settings current;  // guarded by settings_mutex

template <class Value>
void read(const nlohmann::json& object, const char* field, const char* expected, Value* value) {
  const auto it = object.find(field);
  if (it == object.end()) return;
  try {
    it->get_to(*value);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(std::string("settings: ") + field + ": expected " + expected + ", got " +
                                it->dump());
  }
}

}  // namespace

settings parse_settings(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    throw std::invalid_argument("settings: expected a JSON object, got '" + text + "'");
  settings s;
  read(object, "policy", "a string", &s.policy);
  read(object, "budget_bytes", "an integer", &s.budget_bytes);
  read(object, "accepted", "true or false", &s.accepted);
  read(object, "batch", "an integer", &s.batch);
  read(object, "batches", "an object of integers", &s.batches);
  read(object, "keep", "a list of strings", &s.keep);
  read(object, "values", "a list of strings", &s.values);
  read(object, "densities", "an object of numbers", &s.densities);
  read(object, "needs", "an object of strings", &s.needs);
  read(object, "min_bytes", "an integer", &s.min_bytes);
  read(object, "generation", "an integer", &s.generation);
  read(object, "swap", "true or false", &s.swap);
  read(object, "recompute", "a string", &s.recompute);
  read(object, "machine", "a string", &s.machine);
  read(object, "device_bytes", "an integer", &s.device_bytes);
  read(object, "any_device", "true or false", &s.any_device);
  static const std::set<std::string> policies = {"none", "lossless", "fp16", "fp10", "fp8", "auto"};
  if (policies.count(s.policy) == 0) {
    throw std::invalid_argument("settings: policy: expected none, lossless, fp16, fp10, fp8 or auto, got '" +
                                s.policy + "'");
  }
  if (s.recompute != "none" && s.recompute != "cheap" && s.recompute != "all") {
    throw std::invalid_argument("settings: recompute: expected none, cheap or all, got '" + s.recompute +
                                "'");
  }
  for (const std::string& format : s.values) {
    if (!is_unscaled_format(format))
      throw std::invalid_argument("settings: values: expected a format whose values have no scale, got '" +
                                  format + "'");
  }
  for (const auto& [tensor, need] : s.needs) {
    if (need != "fine_value" && need != "exact_value")
      throw std::invalid_argument("settings: needs: expected fine_value or exact_value for " + tensor +
                                  ", got '" + need + "'");
  }
  if (s.budget_bytes < 0) throw std::invalid_argument("settings: budget_bytes: expected 0 or more");
  if (s.device_bytes < 0) throw std::invalid_argument("settings: device_bytes: expected 0 or more");
  if (s.batch < 0) throw std::invalid_argument("settings: batch: expected 0 or more");
  for (const auto& [graph, batch] : s.batches)
    if (batch < 0)
      throw std::invalid_argument("settings: batches: expected 0 or more for " + graph + ", got " +
                                  std::to_string(batch));
  return s;
}

settings process_settings() {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  return current;
}

bool is_lossy(const settings& request) {
  return request.policy != "lossless" && (request.policy != "auto" || !request.values.empty());
}

}  // namespace stash_tf

extern "C" std::int32_t stash_tf_configure(const char* text, char** message) {
  if (message != nullptr) *message = nullptr;
  try {
    stash_tf::settings s = stash_tf::parse_settings(text == nullptr ? "" : text);
    const std::lock_guard<std::mutex> lock(stash_tf::settings_mutex);
    stash_tf::current = std::move(s);
    return STASH_OK;
  } catch (const std::bad_alloc&) {
    return STASH_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    if (message != nullptr) *message = strdup(e.what());
    return STASH_INVALID_ARGUMENT;
  }
}
