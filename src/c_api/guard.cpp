// SPDX-License-Identifier: Apache-2.0
#include "c_api/guard.hpp"

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "c_api/c_message.hpp"
#include "stash/c_api.h"
#include "stash/version.hpp"

namespace stash::c_api {
namespace {

/// Of fixed size: there is a text to be noted when there is no memory, too.
thread_local char last_message[4096] = "";

// Messages are built in a separate buffer, because the text may be the last one itself.
std::int32_t note(const error& e, const char* function, const argument_names& names) noexcept {
  char message[sizeof(last_message)];
  write_c_message(message, function, e.what(), names);
  std::memcpy(last_message, message, sizeof(message));
  return static_cast<std::int32_t>(e.code());
}

/// Of a text that does not name a function.
std::int32_t note(errc code, const char* function, const char* text) noexcept {
  char message[sizeof(last_message)];
  std::snprintf(message, sizeof(message), "%s: %s", function, text);
  std::memcpy(last_message, message, sizeof(message));
  return static_cast<std::int32_t>(code);
}

std::int32_t note_no_memory(const char* function) noexcept {
  return note(errc::out_of_memory, function, "memory: expected enough for the call, got none");
}

}  // namespace

std::int32_t note_exception(const char* function, const argument_names& names) noexcept {
  try {
    throw;
  } catch (const error& e) {
    return note(e, function, names);
  } catch (const std::bad_alloc&) {
    return note_no_memory(function);
  } catch (const std::length_error&) {
    // A list that is longer than any can be.
    return note_no_memory(function);
  } catch (const std::exception& e) {
    return note(errc::internal, function, e.what());
  } catch (...) {
    return note(errc::internal, function, "expected no unknown exception, got one");
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
