// SPDX-License-Identifier: Apache-2.0
#include "c_api/guard.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "stash/c_api.h"
#include "stash/version.hpp"

namespace stash::c_api {
namespace {

/// Of fixed size: there is a text to be noted when there is no memory, too.
thread_local char last_message[4096] = "";

std::int32_t note(errc code, const char* text) noexcept {
  // The text may be the last message itself.
  const std::size_t length = std::min(std::strlen(text), sizeof(last_message) - 1);
  std::memmove(last_message, text, length);
  last_message[length] = '\0';
  return static_cast<std::int32_t>(code);
}

std::int32_t note_no_memory(const char* function) noexcept {
  char text[256];
  std::snprintf(text, sizeof(text), "%s: memory: expected enough for the call, got none", function);
  return note(errc::out_of_memory, text);
}

}  // namespace

std::int32_t note_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const error& e) {
    return note(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return note_no_memory(function);
  } catch (const std::length_error&) {
    // A list that is longer than any can be.
    return note_no_memory(function);
  } catch (const std::exception& e) {
    return note(errc::internal, e.what());
  } catch (...) {
    char text[256];
    std::snprintf(text, sizeof(text), "%s: expected no unknown exception, got one", function);
    return note(errc::internal, text);
  }
}

}  // namespace stash::c_api

const char* stash_version(void) {
  return STASH_VERSION_STRING;
}

const char* stash_errc_name(int32_t code) {
  return stash::to_string(static_cast<stash::errc>(code)).data();
}

const char* stash_last_error_message(void) {
  return stash::c_api::last_message;
}
