// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a caller may want to know of a run although nothing went wrong for good: sparse maps that did not fit
/// where they were expected to, and what was done about it; tensors that came back late. Every such event
/// costs memory or time, so a user who sees many of them will want larger capacities and limits.

#include <cstdint>
#include <string_view>

#include "stash/visibility.h"

namespace stash {

/// What happened. The numbers are stable.
enum class event_kind : std::int32_t {
  overflow = 1,  ///< a tensor outgrew the capacity that it was given
  fallback = 2,  ///< that tensor is now stored all the same, elsewhere or in a larger block
  rerun = 3,     ///< a training step was discarded and runs again with larger capacities
  late = 4,      ///< a tensor was waited for that had not been brought back from the host
};

/// Stable lower-case name, "unknown" for another value. Never throws.
STASH_API std::string_view to_string(event_kind kind) noexcept;

/// Valid during the callback only.
struct event {
  event_kind kind = event_kind::overflow;
  std::string_view tensor{};         ///< the name that the caller or the plan gave it; may be empty
  std::uint64_t required_bytes = 0;  ///< what the tensor needs; rerun: 0 if it is not known
  /// overflow: the capacity; fallback: what it has now; rerun: as overflow; late: the bytes that were there
  std::uint64_t available_bytes = 0;
  std::int64_t step = -1;  ///< rerun: number of the training step, from 0; else -1
};

/// Who hears of events. Called by the thread whose call caused the event, before that call returns; it must
/// not throw and must not call the object that reports. The default hears nothing.
struct event_sink {
  void (*notify)(void* user, const event& what) = nullptr;
  void* user = nullptr;

  void operator()(const event& what) const noexcept {
    if (notify != nullptr) notify(user, what);
  }
};

}  // namespace stash
