// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Checks of encodings and their arguments, shared by encode(), decode() and everything that wraps them.

#include <string>
#include <string_view>

#include "encoders/overlap_check.hpp"
#include "stash/batch.hpp"

namespace stash::encoders {

std::string list_of_names();
/// Throws error(invalid_argument) for an encoding that does not exist. Allocates nothing otherwise, as
/// to_string would.
void check_known(std::string_view function, const encoding& e);

/// Largest encoded size of a legal encoding.
std::size_t bytes_bound(const encoding& e, dtype source, std::int64_t elements);
/// What a buffer must hold at least: all of it, or for bitmap and csr what stands before the payloads.
std::size_t bytes_needed(const encoding& e, dtype source, std::int64_t elements);

/// The bound, after the checks of encoding, source type and count; `argument` is what has that type.
std::size_t checked_bytes_bound(std::string_view function, std::string_view argument, const encoding& e,
                                dtype source, std::int64_t elements);

/// The checks of encode() but for the output.
void check_encode_input(std::string_view function, const encoding& e, const const_tensor_view& input,
                        const execution_context& context);

/// Whether its bytes are tiles, which may lie in an arena, too.
bool is_tiled(encoding_kind kind) noexcept;

/// What the encoded form may use at most of `view`, and its arena, to take(access).
template <class View, class Take>
[[gnu::always_inline]] inline void accesses_of_stored(const char* argument, const encoding& e, dtype source,
                                                      std::int64_t elements, const View& view, use bytes,
                                                      use arena, const Take& take) {
  accesses_of_encoded(argument, view, bytes_bound(e, source, elements), bytes, take);
  if (is_tiled(e.kind)) accesses_of_arena(argument, view.overflow, arena, take);
}
/// What an item of encode() or decode() reads and writes. Arenas are `arena`'s.
template <class Take>
[[gnu::always_inline]] inline void accesses_of(const encode_item& item, use arena, const Take& take) {
  take(memory_access{extent_of(item.input), use::read, "input", ""});
  accesses_of_stored("output", item.how, item.input.type, item.input.elements(), item.output, use::written,
                     arena, take);
}
template <class Take>
[[gnu::always_inline]] inline void accesses_of(const decode_item& item, use /*arena*/, const Take& take) {
  accesses_of_stored("input", item.input.how, item.output.type, item.output.elements(), item.input.bytes,
                     use::read, use::read, take);
  take(memory_access{extent_of(item.output), use::written, "output", ""});
}

/// As many elements as a dense view and, where bytes depend on it, its type.
void check_same_elements(std::string_view function, std::string_view argument, const encoded_tensor& tensor,
                         std::string_view dense_name, const const_tensor_view& dense);
/// The kind of `expected` and, for pooling codes, its taps.
void check_kind(std::string_view function, std::string_view argument, const encoded_tensor& tensor,
                const encoding& expected);

/// All checks of encode() and decode(); `function` stands in the messages.
void check_encode(std::string_view function, const encode_item& item, const execution_context& context);
void check_decode(std::string_view function, const decode_item& item, const execution_context& context);

/// The workspace by itself, and that it does not overlap what the checked items read and write.
void check_workspace(std::string_view function, const workspace_view& workspace, std::size_t needed,
                     std::span<const encode_item> items);

/// The checks of encoded_bytes_exact(), but for the context, which may be a device's; `function` stands in
/// the messages.
void check_count_input(std::string_view function, const encoding& e, const const_tensor_view& input,
                       const execution_context& context);
/// Adds the size of the canonical form of a bitmap or csr, and its count of non-zeros, to a report.
void run_count(const encoding& e, const const_tensor_view& input, encode_report& report,
               const execution_context& context);

/// The calls without their checks.
void run_encode(const encode_item& item, const workspace_view& workspace, const execution_context& context);
void run_decode(const decode_item& item, const execution_context& context);

}  // namespace stash::encoders
