// SPDX-License-Identifier: Apache-2.0
#include "stash/events.hpp"

namespace stash {

std::string_view to_string(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::overflow:
      return "overflow";
    case event_kind::fallback:
      return "fallback";
    case event_kind::rerun:
      return "rerun";
    case event_kind::late:
      return "late";
  }
  return "unknown";
}

}  // namespace stash
