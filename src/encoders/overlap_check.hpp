// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Checks that what a call writes overlaps neither what it reads nor whatever else it writes. An overlap
/// would give wrong data with a good status. Only addresses are compared, so memory of a device is checked
/// like any other.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stash/encoding.hpp"

namespace stash::encoders {

/// Some memory: runs of `run` bytes, one every `pitch` bytes; a single run where `pitch` is 0.
struct extent {
  std::uintptr_t begin, end;
  std::size_t run, pitch;

  bool empty() const noexcept { return begin == end; }
  friend bool operator==(const extent&, const extent&) = default;
};

inline extent extent_of(const void* data, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr || bytes == 0) return {0, 0, 0, 0};
  return {begin, begin + std::min<std::size_t>(bytes, ~begin), bytes, 0};
}
/// Of a pitched view with elements.
extent extent_of_pitched(const const_tensor_view& view) noexcept;
/// Of a view that has been checked.
inline extent extent_of(const const_tensor_view& view) noexcept {
  const std::int64_t elements = view.elements();
  if (elements == 0 || view.dense()) {
    return extent_of(view.data, static_cast<std::size_t>(elements) * size_of(view.type));
  }
  return extent_of_pitched(view);
}

/// True if two extents have a byte in common. Different channels of the same pixels have none. Of
/// views with different pitches that lie in each other's gaps it may say so although they have none.
bool overlap(const extent& a, const extent& b) noexcept;

inline bool may_overlap(const extent& a, const extent& b) noexcept {
  return a.begin < b.end && b.begin < a.end;
}

/// True if no two of them may overlap. Most calls find so, and need not look closer.
template <std::size_t Count>
[[gnu::always_inline]] inline bool plainly_apart(const extent (&all)[Count]) noexcept {
  bool apart = true;
  for (std::size_t i = 1; i < Count; ++i) {
    for (std::size_t j = 0; j < i; ++j)
      apart &= !may_overlap(all[i], all[j]);
  }
  return apart;
}

/// What becomes of it. Reports and counters are written atomically and may be the same for several; so may be
/// what is shared, the arenas of a batch.
enum class use : std::uint8_t { read, counted, shared, written };

/// One of the things that a call reads or writes. `argument` and `member` are for messages. No initialisers:
/// an array of many of them costs nothing.
struct memory_access {
  extent where;
  use how;
  const char *argument, *member;

  bool bothers(const memory_access& other) const noexcept {
    return may_overlap(where, other.where) && (how != use::read || other.how != use::read) &&
           overlap(where, other.where) && !(how == other.how && how != use::written && where == other.where);
  }
};

/// Throws error(invalid_argument): `written` overlaps `other`. The prefix stands before other's name.
[[noreturn]] void fail_overlap(std::string_view function, const memory_access& written,
                               std::string_view prefix, const memory_access& other, bool in_place = false);

// Accesses are added and compared inline, so that they stay in registers: one that is put together in memory
// and copied at once waits for its own stores, a quarter of the time of a call on a small map.

/// Gives the accesses to encoded bytes of which at most `most` are used, and of their report, to take().
template <class View, class Take>
[[gnu::always_inline]] inline void accesses_of_encoded(const char* argument, const View& view,
                                                       std::size_t most, use bytes, const Take& take) {
  take(memory_access{extent_of(view.data, view.bytes < most ? view.bytes : most), bytes, argument, ""});
  take(memory_access{extent_of(view.report, sizeof(encode_report)), use::counted, argument, ".report"});
}
/// The same for its arena, which may be null.
template <class Take>
[[gnu::always_inline]] inline void accesses_of_arena(const char* argument, const overflow_arena* arena,
                                                     use bytes, const Take& take) {
  if (arena == nullptr) return;
  constexpr std::size_t counter = sizeof(std::uint64_t);
  const use counters = bytes == use::read ? use::read : use::counted;
  take(memory_access{extent_of(arena->data, arena->bytes), bytes, argument, ".overflow"});
  take(memory_access{extent_of(arena->claimed, counter), counters, argument, ".overflow.claimed"});
  take(memory_access{extent_of(arena->host_data, arena->host_bytes), bytes, argument, ".overflow.host_data"});
  take(memory_access{extent_of(arena->host_claimed, counter), counters, argument, ".overflow.host_claimed"});
}

/// The memory of one call, added access by access after the arguments have been checked by themselves. Each
/// access is compared with those before it: error(invalid_argument) for the first that overlaps.
class call_memory {
 public:
  explicit call_memory(std::string_view function) noexcept : function_(function) {}

  [[gnu::always_inline]] call_memory& reads(const char* argument, const const_tensor_view& view) {
    return add({extent_of(view), use::read, argument, ""});
  }
  [[gnu::always_inline]] call_memory& writes(const char* argument, const const_tensor_view& view) {
    return add({extent_of(view), use::written, argument, ""});
  }
  /// `view` may be `with`: the same elements at the same addresses.
  [[gnu::always_inline]] call_memory& writes_in_place(const char* argument, const const_tensor_view& view,
                                                      const char* with) {
    return add({extent_of(view), use::written, argument, ""}, with);
  }
  [[gnu::always_inline]] call_memory& writes(const char* argument, const void* data, std::size_t bytes) {
    return add({extent_of(data, bytes), use::written, argument, ""});
  }
  /// The first `most` bytes at most, and the report; nothing for null data, which asks for nothing.
  [[gnu::always_inline]] call_memory& writes(const char* argument, const encoded_view& view,
                                             std::size_t most) {
    if (view.data != nullptr) add_encoded(argument, view, most, use::written);
    return *this;
  }
  [[gnu::always_inline]] call_memory& reads(const char* argument, const const_encoded_view& view,
                                            std::size_t most) {
    add_encoded(argument, view, most, use::read);
    return *this;
  }
  [[gnu::always_inline]] call_memory& arena(const char* argument, const overflow_arena* arena, use how) {
    accesses_of_arena(argument, arena, how, [this](const memory_access& p) { add(p); });
    return *this;
  }
  /// `p` may be the same memory as the access of the argument `in_place_with`.
  [[gnu::always_inline]] call_memory& add(const memory_access& p, const char* in_place_with = nullptr) {
    if (p.where.empty()) return *this;
    for (std::size_t i = 0; i < count_; ++i) {
      if (p.bothers(accesses_[i])) settle(p, accesses_[i], in_place_with);
    }
    assert(count_ < most_accesses);
    accesses_[count_++] = p;
    return *this;
  }

 private:
  /// Two arenas, two encoded tensors and four others are the most that a call has.
  static constexpr std::size_t most_accesses = 16;

  /// Throws unless they are one by permission.
  void settle(const memory_access& p, const memory_access& before, const char* in_place_with) const;
  template <class View>
  void add_encoded(const char* argument, const View& view, std::size_t most, use how) {
    accesses_of_encoded(argument, view, most, how, [this](const memory_access& p) { add(p); });
  }

  std::string_view function_;
  std::size_t count_ = 0;
  std::array<memory_access, most_accesses> accesses_;
};

}  // namespace stash::encoders
