// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From the C structures to the C++ types.

#include <memory>
#include <string_view>

#include "c_api/structs.hpp"
#include "stash/encoding.hpp"
#include "stash/memory.hpp"
#include "stash/pool.hpp"

namespace stash::c_api {

encoding to_encoding(std::string_view function, const stash_encoding* e,
                     std::string_view argument = "encoding");
stash_encoding from_encoding(const encoding& e) noexcept;

dtype to_dtype(std::string_view function, const argument_name& argument, std::int32_t type);
framework_rule to_rule(std::string_view function, std::int32_t rule);
shape to_shape(std::string_view function, std::string_view argument, std::int32_t rank,
               const std::int64_t* dims);

tensor_view to_view(std::string_view function, std::string_view argument, const stash_tensor_view* view);
pool_window to_window(std::string_view function, const stash_pool_window* window);
/// Null: the default.
execution_context to_context(std::string_view function, const stash_execution_context* context);
workspace_view to_workspace(std::string_view function, const stash_workspace_view* workspace);
/// Null: null, which stands for the library's own.
std::unique_ptr<callback_memory> to_memory(std::string_view function, std::string_view argument,
                                           const stash_memory_callbacks* callbacks);

/// Encoded bytes as non-owning calls take them; holds the arena that the view points to.
class encoded_argument {
 public:
  /// The empty view.
  encoded_argument() = default;
  encoded_argument(std::string_view function, std::string_view argument, const stash_encoded_view* view);

  encoded_view output() const noexcept { return {data_, bytes_, arena(), report_}; }
  const_encoded_view input() const noexcept { return {data_, bytes_, arena(), report_}; }

  /// Null: the empty view.
  static encoded_argument optional(std::string_view function, std::string_view argument,
                                   const stash_encoded_view* view) {
    return view == nullptr ? encoded_argument() : encoded_argument(function, argument, view);
  }

 private:
  const overflow_arena* arena() const noexcept { return has_arena_ ? &arena_ : nullptr; }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  encode_report* report_ = nullptr;
  overflow_arena arena_;
  bool has_arena_ = false;
};

/// An encoded tensor of a caller, with the arena that it points to.
class encoded_tensor_argument {
 public:
  encoded_tensor_argument(std::string_view function, std::string_view argument,
                          const stash_encoded_tensor* tensor);

  encoded_tensor get() const noexcept { return {how_, type_, dims_, bytes_.input()}; }

 private:
  encoding how_;
  dtype type_;
  shape dims_;
  encoded_argument bytes_;
};

/// The report of a caller in C, whose layout is that of C++.
encode_report* to_report(stash_encode_report* report) noexcept;
stash_encode_report* from_report(encode_report* report) noexcept;

}  // namespace stash::c_api
