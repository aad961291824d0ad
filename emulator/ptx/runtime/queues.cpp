// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/queues.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>

#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/environment.hpp"

namespace stash::ptx {

struct queue {
  struct item {
    work what;
    std::vector<stream_position> after;
    std::uint64_t number;  ///< among those of all streams
  };

  stream_kind kind;
  std::deque<item> waiting;
  std::uint64_t done = 0;
};

namespace {

/// Also of streams that are gone.
std::vector<std::shared_ptr<queue>>& all() {
  static auto& made = *new std::vector<std::shared_ptr<queue>>;
  return made;
}

/// As CUDA has it, the legacy default stream waits for what blocking streams have, and they wait for it.
bool are_ordered(stream_kind a, stream_kind b) {
  return a != b && a != stream_kind::non_blocking && b != stream_kind::non_blocking;
}

/// A program may end without waiting. Its kernels run, so that what they do wrong is said.
void finish_at_end_of_program() {
  [[maybe_unused]] static const int once = std::atexit([] {
    const std::lock_guard lock(runtime_lock());
    finish_everything();
  });
}

/// A lost device does nothing more.
void forget_everything() {
  for (const auto& q : all()) {
    q->done += q->waiting.size();
    q->waiting.clear();
  }
}

bool all_reached(const std::vector<stream_position>& positions) {
  return std::all_of(positions.begin(), positions.end(), is_reached);
}

cudaError_t do_next_of(const std::shared_ptr<queue>& q) {
  if (!all_reached(q->waiting.front().after)) return do_one(q->waiting.front().after);
  const queue::item next = std::move(q->waiting.front());
  q->waiting.pop_front();
  ++q->done;
  const cudaError_t result = next.what ? next.what() : cudaSuccess;
  if (result != cudaSuccess) forget_everything();
  return result;
}

}  // namespace

bool is_reached(const stream_position& position) {
  return position.in->done >= position.until;
}

stream_position end_of(const std::shared_ptr<queue>& stream) {
  return {stream, stream->done + stream->waiting.size()};
}

std::shared_ptr<queue> make_queue(stream_kind kind) {
  std::erase_if(all(), [](const auto& q) { return q.use_count() == 1 && q->waiting.empty(); });
  all().push_back(std::make_shared<queue>(queue{kind, {}}));
  return all().back();
}

cudaError_t add(const std::shared_ptr<queue>& to, work what, std::vector<stream_position> after) {
  static std::uint64_t added = 0;
  finish_at_end_of_program();
  for (const auto& other : all())
    if (are_ordered(to->kind, other->kind) && !other->waiting.empty()) after.push_back(end_of(other));
  to->waiting.push_back({std::move(what), std::move(after), ++added});
  return streams_are_eager() ? finish({end_of(to)}) : cudaSuccess;
}

cudaError_t do_one(const std::vector<stream_position>& ends) {
  const stream_position* latest = nullptr;
  const auto number = [](const stream_position& position) { return position.in->waiting.front().number; };
  for (const stream_position& position : ends)
    if (!is_reached(position) && (latest == nullptr || number(position) > number(*latest)))
      latest = &position;
  return latest == nullptr ? cudaSuccess : do_next_of(std::shared_ptr(latest->in));
}

cudaError_t finish(const std::vector<stream_position>& ends) {
  cudaError_t result = cudaSuccess;
  while (result == cudaSuccess && !all_reached(ends))
    result = do_one(ends);
  return result;
}

cudaError_t finish_everything() {
  std::vector<stream_position> ends;
  for (const auto& q : all())
    ends.push_back(end_of(q));
  return finish(ends);
}

}  // namespace stash::ptx
