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

char* stash_tf_counters() {
  try {
    const std::string json = stash_tf::counters_json();
    auto* text = static_cast<char*>(std::malloc(json.size() + 1));
    if (text != nullptr) std::memcpy(text, json.c_str(), json.size() + 1);
    return text;
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
