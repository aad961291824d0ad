// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The types of the opaque handles that more than one unit knows.

#include <cstdint>
#include <memory>

#include "stash/c_api.h"
#include "stash/events.hpp"
#include "stash/memory.hpp"
#include "stash/stashed_tensor.hpp"

struct stash_handle {
  std::unique_ptr<stash::callback_memory> memory;  ///< null: the library's own; outlives the tensor
  stash::stashed_tensor tensor;
  stash_encoding encoding{};   ///< what stash_handle_tensor() points to
  stash_encoded_view bytes{};  ///< the same
};

namespace stash::c_api {

/// The caller's listener, called with the caller's structure.
struct listener {
  void (*notify)(void* user, const stash_event* event) = nullptr;
  void* user = nullptr;

  static void hear(void* self, const event& what) {
    const auto& to = *static_cast<const listener*>(self);
    // A text in C ends with a zero byte; the name that the handle was given does.
    const stash_event c{sizeof(stash_event),
                        static_cast<std::int32_t>(what.kind),
                        0,
                        what.tensor.empty() ? "" : what.tensor.data(),
                        what.required_bytes,
                        what.available_bytes,
                        what.step};
    to.notify(to.user, &c);
  }
};

}  // namespace stash::c_api
