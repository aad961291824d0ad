// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Reading and writing structures of callers that know an older or a newer version of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "stash/c_api.h"
#include "stash/error.hpp"

namespace stash::c_api {

/// How messages call an argument, or one of its members. Put together only where it is needed.
struct argument_name {
  argument_name(const char* whole) noexcept : argument(whole) {}       // NOLINT(google-explicit-constructor)
  argument_name(std::string_view whole) noexcept : argument(whole) {}  // NOLINT(google-explicit-constructor)
  argument_name(const std::string& whole) noexcept
      : argument(whole) {}  // NOLINT(google-explicit-constructor)
  argument_name(std::string_view whole, std::string_view part) noexcept : argument(whole), member(part) {}

  std::string_view argument, member{};  ///< no member: the argument itself
};

/// Throws error(invalid_argument): "function: argument: expected ..., got ...".
[[noreturn]] void refuse(std::string_view function, const argument_name& argument, std::string_view expected,
                         std::string_view got);

/// Size of a structure in the first version that had it. These numbers never change: a smaller structure was
/// not initialised.
template <class Struct>
inline constexpr std::size_t first_size = 0;
template <>
inline constexpr std::size_t first_size<stash_tensor_view> = 104;
template <>
inline constexpr std::size_t first_size<stash_execution_context> = 40;
template <>
inline constexpr std::size_t first_size<stash_encoding> = 40;
template <>
inline constexpr std::size_t first_size<stash_overflow_arena> = 32;
template <>
inline constexpr std::size_t first_size<stash_encoded_view> = 40;
template <>
inline constexpr std::size_t first_size<stash_encoded_tensor> = 96;
template <>
inline constexpr std::size_t first_size<stash_value_format> = 48;
template <>
inline constexpr std::size_t first_size<stash_workspace_view> = 24;
template <>
inline constexpr std::size_t first_size<stash_batch_item> = 32;
template <>
inline constexpr std::size_t first_size<stash_csr32_view> = 48;
template <>
inline constexpr std::size_t first_size<stash_stored_size> = 48;
template <>
inline constexpr std::size_t first_size<stash_pool_window> = 64;
template <>
inline constexpr std::size_t first_size<stash_dropout_key> = 32;
template <>
inline constexpr std::size_t first_size<stash_memory_callbacks> = 40;
template <>
inline constexpr std::size_t first_size<stash_handle_options> = 48;
template <>
inline constexpr std::size_t first_size<stash_plan_options> = 64;
template <>
inline constexpr std::size_t first_size<stash_swapper_options> = 80;
template <>
inline constexpr std::size_t first_size<stash_swap_request> = 48;
template <>
inline constexpr std::size_t first_size<stash_swap_statistics> = 80;

/// The size at the start of a structure, checked against its first version's.
std::size_t checked_size(std::string_view function, const argument_name& argument, const void* data,
                         std::size_t first);
/// Refuses members that this version does not know, unless they are zero.
void check_unknown(std::string_view function, const argument_name& argument, const void* data,
                   std::size_t known, std::size_t size);

/// Refuses a reserved member that is not zero: a later version may give it a meaning.
void check_reserved(std::string_view function, const argument_name& argument, std::string_view member,
                    std::int64_t value);

/// The caller's structure in this version: members that the caller does not have are zero.
template <class Struct>
Struct read(std::string_view function, const argument_name& argument, const Struct* from) {
  static_assert(first_size<Struct> != 0 && first_size<Struct> <= sizeof(Struct));
  const std::size_t size = checked_size(function, argument, from, first_size<Struct>);
  if (size > sizeof(Struct)) check_unknown(function, argument, from, sizeof(Struct), size);
  Struct known{};
  if (size >= sizeof(Struct)) {
    std::memcpy(&known, from, sizeof(Struct));  // of a constant size, which takes no call
  } else {
    std::memcpy(&known, from, size);
  }
  if constexpr (requires { known.reserved; }) check_reserved(function, argument, "reserved", known.reserved);
  return known;
}

/// Writes what the caller's version has of `value`, whose struct_size is set to the caller's; the rest of a
/// larger structure becomes zero.
template <class Struct>
void write(std::string_view function, std::string_view argument, Struct* to, Struct value) {
  static_assert(first_size<Struct> != 0 && first_size<Struct> <= sizeof(Struct));
  const std::size_t size = checked_size(function, argument, to, first_size<Struct>);
  value.struct_size = size;
  std::memcpy(to, &value, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) {
    std::memset(reinterpret_cast<unsigned char*>(to) + sizeof(Struct), 0, size - sizeof(Struct));
  }
}

/// A pointer that must not be null.
template <class T>
T& checked(std::string_view function, std::string_view argument, T* pointer) {
  if (pointer == nullptr) refuse(function, argument, "an address", "null");
  return *pointer;
}

/// The enumerator with this value. Values that the enumeration's type holds but does not name are left to
/// the C++ functions.
template <class Enum>
Enum enumerator(std::string_view function, const argument_name& argument, std::int32_t value) {
  if (value < 0 || value > 255)
    refuse(function, argument, "one of the header's numbers", std::to_string(value));
  return static_cast<Enum>(value);
}

}  // namespace stash::c_api
