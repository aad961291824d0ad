// SPDX-License-Identifier: Apache-2.0
#include "simt/recording.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

namespace simt {
namespace {

/// A stream of the recording. The first one is where it began.
struct member {
  void* stream;
  std::size_t work;               ///< items that it was given
  std::vector<std::size_t> seen;  ///< of every member, itself included: how many come before what is next
};

struct under_way {
  std::size_t number = 0;  ///< distinguishes recordings; 0: nothing is recorded
  std::vector<member> members;
  std::vector<std::function<void()>> work;
  std::string spoiled_by;

  member* find(void* stream) {
    const auto at = std::find_if(members.begin(), members.end(),
                                 [&](const member& m) { return number != 0 && m.stream == stream; });
    return at == members.end() ? nullptr : &*at;
  }
  void spoil(const char* call) {
    if (spoiled_by.empty()) spoiled_by = call;
  }
  /// Empty if it may be launched.
  std::string problem() const {
    if (!spoiled_by.empty()) return spoiled_by + " in it";
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::vector<std::size_t>& seen = members[0].seen;
      if (members[m].work != (m < seen.size() ? seen[m] : 0))
        return "work in another stream that its own never waits for";
    }
    return {};
  }
};

std::mutex mutex;
under_way current;
std::size_t recordings = 0;

}  // namespace

struct recorded_position {
  std::size_t recording;
  std::vector<std::size_t> seen;
};

recording::recording(void* stream, const std::function<void()>& enqueue) {
  {
    const std::lock_guard lock(mutex);
    if (current.number != 0) throw not_recordable("a recording: expected no other one, got one under way");
    current.number = ++recordings;
    current.members.push_back({stream, 0, {0}});
  }
  const auto end = [] {
    const std::lock_guard lock(mutex);
    return std::exchange(current, {});
  };
  try {
    enqueue();
  } catch (...) {
    end();
    throw;
  }
  under_way recorded = end();
  const std::string problem = recorded.problem();
  if (!problem.empty())
    throw not_recordable("a recording: expected work that can be recorded, got " + problem);
  work_ = std::move(recorded.work);
}

void recording::launch() const {
  if (spoil("the launch of another one"))
    throw not_recordable("a launch of recorded work: expected no recording, got one under way");
  for (const auto& work : work_)
    work();
}

bool is_recorded(void* stream) {
  const std::lock_guard lock(mutex);
  return current.find(stream) != nullptr;
}

void record(void* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  member* const m = current.find(stream);
  if (m == nullptr) throw not_recordable("record: expected a stream that is recorded, got another one");
  current.work.push_back(std::move(work));
  m->seen[static_cast<std::size_t>(m - current.members.data())] = ++m->work;
}

std::shared_ptr<const recorded_position> position_of(void* stream) {
  const std::lock_guard lock(mutex);
  const member* const m = current.find(stream);
  if (m == nullptr) throw not_recordable("position_of: expected a stream that is recorded, got another one");
  return std::make_shared<const recorded_position>(recorded_position{current.number, m->seen});
}

bool continue_after(void* stream, const recorded_position& position) {
  const std::lock_guard lock(mutex);
  if (position.recording != current.number) return false;
  if (current.find(stream) == nullptr) {
    const std::size_t number = current.members.size();
    current.members.push_back({stream, 0, std::vector<std::size_t>(number + 1)});
  }
  std::vector<std::size_t>& seen = current.find(stream)->seen;
  seen.resize(std::max(seen.size(), position.seen.size()));
  for (std::size_t m = 0; m < position.seen.size(); ++m)
    seen[m] = std::max(seen[m], position.seen[m]);
  return true;
}

bool spoil(void* stream, const char* call) {
  const std::lock_guard lock(mutex);
  if (current.find(stream) == nullptr) return false;
  current.spoil(call);
  return true;
}

bool spoil(const char* call) {
  const std::lock_guard lock(mutex);
  if (current.number == 0) return false;
  current.spoil(call);
  return true;
}

}  // namespace simt
