// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Making and unmaking stashed tensors around memory that is there already.

#include <string>
#include <string_view>
#include <utility>

#include "runtime/memory/deferred_free.hpp"
#include "stash/error.hpp"
#include "stash/stashed_tensor.hpp"

namespace stash::runtime {

struct stash_access {
  /// Owns `block`: the encoded bytes, then the report; of `memory`, sized and aligned as stashed_tensor does,
  /// to be freed in `stream`.
  static stashed_tensor adopt(const encoding& e, dtype source, const shape& dims, std::string name,
                              memory_resource& memory, void* stream, unsigned char* block,
                              std::size_t encoded_bytes) noexcept {
    stashed_tensor tensor;
    tensor.how_ = e;
    tensor.type_ = source;
    tensor.dims_ = dims;
    tensor.name_ = std::move(name);
    tensor.memory_ = &memory;
    tensor.stream_ = stream;
    tensor.block_ = block;
    tensor.encoded_bytes_ = encoded_bytes;
    return tensor;
  }

  /// The tensor's memory, which is not the tensor's any more.
  static kept_block take_block(stashed_tensor& tensor) noexcept {
    const kept_block block{tensor.memory_, tensor.block_, tensor.block_bytes()};
    release(tensor);
    return block;
  }

  /// Undoes adopt(): the block is not the tensor's any more.
  static void release(stashed_tensor& tensor) noexcept {
    tensor.memory_ = nullptr;
    tensor.block_ = nullptr;
    tensor.encoded_bytes_ = 0;
  }

  static memory_space space(const stashed_tensor& tensor) noexcept { return tensor.memory_->space(); }

  static constexpr std::size_t alignment = 64;  ///< of blocks
};

/// Throws what `e` says, with the name of the tensor after the function; `inner`: what stands before it now.
[[noreturn]] void throw_named(std::string_view function, std::string_view name, std::string_view inner,
                              const error& e);

/// All checks of stashed_tensor::restore(); function and name stand in the messages. Of `stored` only
/// addresses and sizes are looked at.
void check_restore(std::string_view function, std::string_view name, const encoded_tensor& stored,
                   const tensor_view& output, const execution_context& context);

}  // namespace stash::runtime
