// SPDX-License-Identifier: Apache-2.0
#include "kernels/counters.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

#include "stash/c_api.h"

namespace stash_tf {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

struct registry {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<counter>> counters;
};

std::atomic<std::int64_t> all_surprises{0};
std::atomic<std::uint32_t> all_resets{0};

/// As in names of encodings.
std::string format_name(std::int32_t values) {
  auto cast = STASH_INIT(stash_encoding);
  cast.kind = STASH_KIND_CAST;
  cast.values = values;
  char name[32];
  return stash_encoding_name(&cast, name, sizeof(name)) == STASH_OK ? name : std::to_string(values);
}

/// Never destroyed: kernels may outlive static objects.
registry& all() {
  static registry* const one = new registry;
  return *one;
}

}  // namespace

void counter::add(const execution& e) noexcept {
  executions_.fetch_add(1, relaxed);
  elements_.fetch_add(e.elements, relaxed);
  dense_bytes_.fetch_add(e.dense_bytes, relaxed);
  stored_bytes_.fetch_add(e.stored_bytes, relaxed);
  (e.nonzeros < 0 ? uncounted_ : nonzeros_).fetch_add(e.nonzeros < 0 ? 1 : e.nonzeros, relaxed);
  nanoseconds_.fetch_add(e.nanoseconds, relaxed);
  batch_.store(e.batch, relaxed);
  std::int64_t most = most_elements_.load(relaxed);
  while (most < e.elements)
    if (most_elements_.compare_exchange_weak(most, e.elements, relaxed)) {
      all_surprises.fetch_add(1, relaxed);
      break;
    }
  const auto format = static_cast<std::size_t>(e.format);
  if (format >= formats) return;
  double largest = rounding_[format].load(relaxed);
  while (largest < e.rounding)
    if (rounding_[format].compare_exchange_weak(largest, e.rounding, relaxed)) {
      if (e.rounding > largest_rounding && largest <= largest_rounding) all_surprises.fetch_add(1, relaxed);
      break;
    }
}

void counter::reset() noexcept {
  for (auto* sum : {&executions_, &elements_, &dense_bytes_, &stored_bytes_, &nonzeros_, &uncounted_,
                    &nanoseconds_, &batch_, &most_elements_}) {
    sum->store(0, relaxed);
  }
  for (std::atomic<double>& largest : rounding_)
    largest.store(0, relaxed);
}

nlohmann::json counter::json() const {
  nlohmann::json object = {{"executions", executions()},
                           {"elements", elements_.load(relaxed)},
                           {"most_elements", most_elements_.load(relaxed)},
                           {"dense_bytes", dense_bytes_.load(relaxed)},
                           {"stored_bytes", stored_bytes_.load(relaxed)},
                           {"nonzeros", nullptr},
                           {"rounding", nlohmann::json::object()},
                           {"misfits", nlohmann::json::array()},
                           {"nanoseconds", nanoseconds_.load(relaxed)},
                           {"batch", batch_.load(relaxed)}};
  if (uncounted_.load(relaxed) == 0) object["nonzeros"] = nonzeros_.load(relaxed);
  for (std::size_t format = 0; format < formats; ++format) {
    const double rounding = rounding_[format].load(relaxed);
    if (rounding <= 0) continue;
    const std::string name = format_name(static_cast<std::int32_t>(format));
    object["rounding"][name] = rounding;
    if (rounding > largest_rounding) object["misfits"].push_back(name);
  }
  return object;
}

counter* counter_of(std::string_view op, std::string_view tensor) {
  registry& r = all();
  const std::lock_guard<std::mutex> lock(r.mutex);
  std::unique_ptr<counter>& slot = r.counters[{std::string(op), std::string(tensor)}];
  if (!slot) slot = std::make_unique<counter>();
  return slot.get();
}

std::string counters_json() {
  registry& r = all();
  const std::lock_guard<std::mutex> lock(r.mutex);
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [key, slot] : r.counters) {
    if (slot->executions() == 0) continue;
    nlohmann::json object = slot->json();
    object["op"] = key.first;
    object["tensor"] = key.second;
    list.push_back(std::move(object));
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::int64_t surprises() noexcept {
  return all_surprises.load(relaxed);
}

std::uint32_t resets() noexcept {
  return all_resets.load(relaxed);
}

void reset_counters() {
  all_resets.fetch_add(1, relaxed);
  registry& r = all();
  const std::lock_guard<std::mutex> lock(r.mutex);
  for (const auto& [key, slot] : r.counters)
    slot->reset();
}

}  // namespace stash_tf
