// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/memory/arena.hpp"
#include "runtime/swap/swap_lanes.hpp"
#include "stash/error.hpp"

namespace stash::runtime {

std::string_view to_string(swap_action action) noexcept {
  switch (action) {
    case swap_action::copy:
      return "copy";
    case swap_action::signal:
      return "signal";
    case swap_action::wait:
      return "wait";
  }
  return "unknown";
}

swap_work::swap_work(swap_program p, const swap_memory& m, swap_settings s, bool allow_races)
    : program(std::move(p)), memory(m), settings(std::move(s)) {
  check_program(program);
  if (settings.chunk_bytes <= 0) {
    throw error(errc::invalid_argument,
                fmt::format("swap engine: chunk_bytes: expected more than 0, got {}", settings.chunk_bytes));
  }
  std::erase_if(program.edges, [&](const swap_edge& e) {
    return std::ranges::find(settings.without, e) != settings.without.end();
  });
  const std::vector<swap_race> races = find_races(program);
  if (!races.empty() && !allow_races) {
    const auto name = [&](std::int32_t t) { return program.tasks[static_cast<std::size_t>(t)].name; };
    throw error(errc::verification_failed,
                fmt::format("swap engine: edges: expected every conflict in order, got {} and {} unordered",
                            name(races.front().before), name(races.front().after)));
  }
  const std::size_t n = program.tasks.size();
  waits.resize(n);
  signals.assign(n, 0);
  for (const swap_edge& e : program.edges) {
    waits[static_cast<std::size_t>(e.after)].push_back(e.before);
    signals[static_cast<std::size_t>(e.before)] = 1;
  }
  for (std::size_t t = 0; t < n; ++t)
    order[index(program.tasks[t].lane)].push_back(static_cast<std::int32_t>(t));
  blocks_of.resize(n);
  uses.assign(program.blocks.size(), 0);
  for (std::size_t t = 0; t < n; ++t) {
    for (const swap_access& a : program.tasks[t].accesses) {
      if (std::ranges::find(blocks_of[t], a.block) != blocks_of[t].end()) continue;
      blocks_of[t].push_back(a.block);
      ++uses[static_cast<std::size_t>(a.block)];
    }
  }
  times.resize(n);
  copied.assign(n, 0);
  uses_left = std::make_unique<std::atomic<std::int32_t>[]>(program.blocks.size());
}

void swap_work::begin() {
  for (std::size_t b = 0; b < uses.size(); ++b)
    uses_left[b].store(uses[b], std::memory_order_relaxed);
  std::ranges::fill(copied, 0);
  started = std::chrono::steady_clock::now();
}

double swap_work::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

error swap_work::failed(swap_action action, std::int32_t task, const error& e) const {
  return error(e.code(),
               fmt::format("swap engine: {}: {}: {}", program.tasks[static_cast<std::size_t>(task)].name,
                           to_string(action), e.what()));
}

std::byte* swap_work::block(std::int32_t task, std::size_t access) const {
  const swap_access& a = program.tasks[static_cast<std::size_t>(task)].accesses[access];
  return memory.begin(program.blocks[static_cast<std::size_t>(a.block)]);
}

std::int64_t swap_work::bytes_to_copy(std::int32_t task) const {
  const swap_task& t = program.tasks[static_cast<std::size_t>(task)];
  if (t.used == nullptr) return t.bytes;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(*t.used, static_cast<std::uint64_t>(t.bytes)));
}

void swap_work::copy_chunk(std::int32_t task, std::int64_t total) {
  std::int64_t& done = copied[static_cast<std::size_t>(task)];
  const std::int64_t bytes = std::min(settings.chunk_bytes, total - done);
  on(swap_action::copy, task, 1, [&](std::size_t) {
    std::memcpy(block(task, 1) + done, block(task, 0) + done, static_cast<std::size_t>(bytes));
  });
  done += bytes;
}

void swap_work::end_of(std::int32_t task) {
  times[static_cast<std::size_t>(task)].end = seconds();
  if (!settings.poison) return;
  for (const std::int32_t b : blocks_of[static_cast<std::size_t>(task)]) {
    if (uses_left[static_cast<std::size_t>(b)].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    const swap_block& block = program.blocks[static_cast<std::size_t>(b)];
    poison(memory.begin(block), memory.begin(block) + block.bytes);
  }
}

swap_engine::swap_engine(swap_program program, const swap_memory& memory, swap_settings settings) {
  const bool scheduled = settings.schedule != nullptr;
  work_ = std::make_unique<swap_work>(std::move(program), memory, std::move(settings), scheduled);
  if (scheduled) {
    conflicts_ = find_conflicts(work_->program);
  } else {
    threads_ = std::make_unique<swap_threads>(*work_);
  }
}

swap_engine::~swap_engine() = default;

bool swap_engine::run(const std::function<bool(std::int32_t)>& compute) {
  work_->begin();
  return threads_ != nullptr ? threads_->run(compute) : run_in_order(*work_, conflicts_, compute);
}

const swap_program& swap_engine::program() const noexcept {
  return work_->program;
}

std::span<const swap_time> swap_engine::times() const noexcept {
  return work_->times;
}

std::int64_t swap_engine::copied_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const std::int64_t c : work_->copied)
    sum += c;
  return sum;
}

}  // namespace stash::runtime
