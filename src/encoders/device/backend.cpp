// SPDX-License-Identifier: Apache-2.0
#include "encoders/device/backend.hpp"

#include <atomic>

namespace stash::encoders::device {

#ifdef STASH_BUILT_IN_BACKEND
// A library with kernels. Its name here keeps them in programs that link the static library, whose linker
// leaves out what nobody refers to.
extern const backend built_in_backend;
constinit std::atomic<const backend*> registered{&built_in_backend};
#else
constinit std::atomic<const backend*> registered{nullptr};
#endif

void register_backend(const backend* back_end) noexcept {
  registered.store(back_end, std::memory_order_release);
}

const backend* registered_backend() noexcept {
  return registered.load(std::memory_order_acquire);
}

}  // namespace stash::encoders::device
