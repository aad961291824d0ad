// SPDX-License-Identifier: Apache-2.0
// The part of extension_api.hpp that is about kernels, versions and texts.

#include "extension_api.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "kernels/counters.hpp"
#include "stash/c_api.h"

const char* stash_tf_built_for() {
  return STASH_TF_VERSION;
}

const char* stash_tf_core_version() {
  return stash_version();
}

namespace {

/// For stash_tf_free(); null if there is no memory for it.
char* text_of(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

char* stash_tf_formats() {
  try {
    std::string json = "[";
    for (std::size_t i = 0; i < stash_value_format_count(); ++i) {
      auto format = STASH_INIT(stash_value_format);
      if (stash_value_format_at(i, &format) != STASH_OK) return nullptr;
      json += std::string(i == 0 ? "" : ", ") + R"({"name": ")" + format.name + R"(", "scaled": )" +
              (format.scaled != 0 ? "true" : "false") + "}";
    }
    return text_of(json + "]");
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

char* stash_tf_counters() {
  try {
    return text_of(stash_tf::counters_json());
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::int64_t stash_tf_surprises() {
  return stash_tf::surprises();
}

void stash_tf_reset_counters() {
  try {
    stash_tf::reset_counters();
  } catch (const std::bad_alloc&) {
    // Nothing has been counted where no memory for counters has been allocated yet.
  }
}

void stash_tf_free(char* text) {
  std::free(text);
}
