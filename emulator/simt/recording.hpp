// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Recorded work, which CUDA calls a graph. What is enqueued in a stream while that is recorded does not
/// happen then: it is kept with its arguments as they are, and happens whenever the recording is launched, on
/// the memory as it is by then. Streams that wait for a recorded one are recorded with it, and it has to wait
/// for them again before the end.
///
/// One recording at a time, from any thread. Streams are names: this file knows nothing of their work.

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "simt/simt.hpp"

namespace simt {

/// What was enqueued is no recording; what() says why not.
class not_recordable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class recording {
 public:
  /// Records what `enqueue` enqueues in `stream`. Throws not_recordable where CUDA makes no graph of it: it
  /// was spoiled, or work was left in a stream that nobody waits for. What `enqueue` throws comes first.
  recording(void* stream, const std::function<void()>& enqueue);
  /// Does all work in the order in which it was recorded.
  void launch() const;

 private:
  std::vector<std::function<void()>> work_;
};

/// How far streams that are recorded together have come where one of them is.
struct recorded_position;
/// Of a stream that is recorded.
std::shared_ptr<const recorded_position> position_of(void* stream);
/// The stream continues after the position, and is recorded with the others from now on. False if the
/// recording of the position has ended.
bool continue_after(void* stream, const recorded_position& position);

/// For what cannot be recorded, such as waiting: true if a stream is recorded (this one; any one). It will be
/// no recording then.
bool spoil(void* stream, const char* call);
bool spoil(const char* call);

}  // namespace simt
