// SPDX-License-Identifier: Apache-2.0
// Headers for C are often included so, as if they did not say it themselves.

extern "C" {
#include "stash/c_api.h"
}

static_assert(sizeof(stash_encoding) > sizeof(stash_encoding::struct_size));

/// Used nowhere: it has to compile.
stash_encoding wrapped_encoding();
stash_encoding wrapped_encoding() {
  return STASH_INIT(stash_encoding);
}
