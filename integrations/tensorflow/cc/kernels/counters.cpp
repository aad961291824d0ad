#include "kernels/counters.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

namespace stash_tf {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

struct registry {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<counter>> counters;
};

std::atomic<std::int64_t> all_surprises{0};

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
  if (e.squares <= 0) return;
  const double rounding = std::sqrt(e.rounding_squares / e.squares);
  const double before = rounding_.exchange(rounding, relaxed);
  if (rounding > largest_rounding && before <= largest_rounding) all_surprises.fetch_add(1, relaxed);
}

void counter::reset() noexcept {
  for (auto* sum : {&executions_, &elements_, &dense_bytes_, &stored_bytes_, &nonzeros_, &uncounted_,
                    &nanoseconds_, &batch_, &most_elements_}) {
    sum->store(0, relaxed);
  }
  rounding_.store(no_sample, relaxed);
}

nlohmann::json counter::json() const {
  nlohmann::json object = {{"executions", executions()},
                           {"elements", elements_.load(relaxed)},
                           {"most_elements", most_elements_.load(relaxed)},
                           {"dense_bytes", dense_bytes_.load(relaxed)},
                           {"stored_bytes", stored_bytes_.load(relaxed)},
                           {"nonzeros", nullptr},
                           {"rounding", nullptr},
                           {"nanoseconds", nanoseconds_.load(relaxed)},
                           {"batch", batch_.load(relaxed)}};
  if (uncounted_.load(relaxed) == 0) object["nonzeros"] = nonzeros_.load(relaxed);
  const double rounding = rounding_.load(relaxed);
  if (rounding >= 0) object["rounding"] = rounding;
  object["suits"] = rounding <= largest_rounding;
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

void reset_counters() {
  registry& r = all();
  const std::lock_guard<std::mutex> lock(r.mutex);
  for (const auto& [key, slot] : r.counters)
    slot->reset();
}

}  // namespace stash_tf
