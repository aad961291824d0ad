// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// An encoded tensor that owns its memory: what a custom layer keeps between its forward and its backward
/// pass.
///
///     stashed_tensor kept(parse_encoding("bitmap"), y);         // forward: y may be overwritten now
///     ...
///     kept.restore(y_again);                                    // backward
///
/// Layers that read or write encoded bytes themselves (relu.hpp, pool.hpp, dropout.hpp) take the views
/// output() and stored():
///
///     stashed_tensor mask = stashed_tensor::reserve(parse_encoding("sign_mask"), dtype::f32, y.dims);
///     relu_forward(x, y, mask.output(), rule, context);
///     ...
///     relu_backward(dy, mask.stored(), dx, rule, context);
///     mask.check();
///     mask.rewind(context);                                     // before the next step's forward
///
/// On a device (context.space) tensors, encoded bytes and report lie in device memory, and the calls enqueue
/// their work in the context's stream. Only these wait for it: the constructor of a sparse encoding unless
/// options.capacity reaches encoded_bytes_bound(), and check(). What damaged bytes restore() finds is said by
/// check().
///
/// Thread safety: const member functions may run at the same time, others may not run at the same time as
/// anything else on the same object.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stash/encoding.hpp"
#include "stash/events.hpp"
#include "stash/memory.hpp"
#include "stash/size_query.hpp"

namespace stash {

namespace runtime {
struct stash_access;
}

/// How a tensor is to be kept; all of it is optional.
struct stash_options {
  /// Bytes to reserve for a sparse encoding (bitmap, csr); rounded up to 16 and cut to the encoding's bound.
  /// 0: the tensor is counted first and gets exactly what it needs, which reads it twice. Encodings of fixed
  /// size take what they need and ignore it.
  std::size_t capacity = 0;
  /// Must outlive the handle and be of the context's space; null: host_memory(), for a device
  /// device_memory().
  memory_resource* memory = nullptr;
  event_sink events{};      ///< hears of overflow and fallback
  std::string_view name{};  ///< of the tensor, for events and error messages; copied
};

/// Move-only handle. A default-constructed or moved-from one is empty: 0 bytes, no memory.
class STASH_API stashed_tensor {
 public:
  stashed_tensor() noexcept = default;

  /// Encodes `input` (see encode() for kinds and types); `input` is not needed afterwards.
  /// If a sparse tensor does not fit options.capacity, events.overflow is reported, the tensor is encoded
  /// again into a block of exactly its size, and events.fallback is reported: it is never lost.
  /// Throws error(invalid_argument / unsupported) as encode(), error(out_of_memory) if the memory resource
  /// has none; `input` is untouched and no memory is kept then.
  stashed_tensor(const encoding& e, const const_tensor_view& input, const stash_options& options = {},
                 const execution_context& context = {});

  /// Memory for the encoded form of a tensor of this type and shape that a layer will write through
  /// output(). For window_index and relu_pool, `dims` are those of the pooled tensor. bitmap and csr take
  /// options.capacity, or their bound if that is 0. Throws as the constructor.
  /// For one tensor: layers add to the report, so a handle that is kept for the next one needs rewind()
  /// first.
  static stashed_tensor reserve(const encoding& e, dtype source, const shape& dims,
                                const stash_options& options = {}, const execution_context& context = {});

  /// `other` is empty afterwards; what this held before is given back.
  stashed_tensor(stashed_tensor&& other) noexcept;
  stashed_tensor& operator=(stashed_tensor&& other) noexcept;
  stashed_tensor(const stashed_tensor&) = delete;
  stashed_tensor& operator=(const stashed_tensor&) = delete;
  ~stashed_tensor();

  /// Decodes into `output`: the encoded tensor's type (for masks: what decode() takes) and element count,
  /// dense or pitched. Can be called any number of times. Throws error(invalid_argument) for an empty handle
  /// or a wrong view, error(unsupported) for encodings without a dense form (see decode()),
  /// error(corrupt_data), error(verification_failed) or, where they look like a slot that was too small,
  /// error(capacity_exceeded) if the bytes turn out damaged (`output` is then unspecified; on a device
  /// check() throws it).
  void restore(const tensor_view& output, const execution_context& context = {}) const;

  /// Throws error(corrupt_data), error(capacity_exceeded) or error(verification_failed) if a layer that read
  /// or wrote the bytes through a view left a status in the report, which stays there until rewind(); does
  /// nothing otherwise. Waits for the
  /// context's stream.
  void check(const execution_context& context = {}) const;

  /// Makes the handle ready for another tensor of the same kind, type and shape, which a layer writes through
  /// output(): the report is as new (no status, no flags, no sizes), the memory stays, and views stay valid.
  /// What was stored is lost; until a layer has written, reading gives anything. On a device the work is
  /// enqueued in the context's stream, and nothing is waited for; whoever reads the old tensor in another
  /// stream has to be waited for there. A size_query that was asked before keeps the old tensor's figures: on
  /// a device if it was asked in the same stream.
  /// Throws error(invalid_argument) for an empty handle or a context of another space than the handle's, and
  /// on a device error(device_failure); nothing has changed then.
  void rewind(const execution_context& context = {});

  /// Gives the memory back, ordered after what was enqueued in the stream of construction.
  void reset() noexcept;

  bool empty() const noexcept { return memory_ == nullptr; }  ///< holds nothing
  const encoding& how() const noexcept { return how_; }       ///< how the tensor is stored
  dtype type() const noexcept { return type_; }               ///< of the dense tensor
  const shape& dims() const noexcept { return dims_; }        ///< of the dense tensor
  const std::string& name() const noexcept { return name_; }  ///< as given in the options
  /// Bytes that are held, bookkeeping included.
  std::size_t bytes() const noexcept { return empty() ? 0 : block_bytes(); }
  /// What the dense tensor takes. For a reserved pooling code: the pooled tensor's.
  std::size_t dense_bytes() const noexcept;

  /// Asks for size and density without waiting, see size_query.hpp. Throws error(invalid_argument) for an
  /// empty handle.
  size_query size(const execution_context& context = {}) const;

  /// For non-owning calls: where a layer writes the bytes, and the tensor for those who read it. Both stay
  /// valid until the handle is moved from, reset or destroyed (the move's target keeps the block: views made
  /// before stay valid). Without memory for an empty handle.
  encoded_view output() noexcept;
  encoded_tensor stored() const noexcept;  ///< see output()

 private:
  friend struct runtime::stash_access;
  stashed_tensor(const encoding& e, dtype source, const shape& dims, std::size_t bytes,
                 const stash_options& options, const execution_context& context);
  std::size_t block_bytes() const noexcept;
  encode_report* report() const noexcept;

  encoding how_;
  dtype type_ = dtype::f32;
  shape dims_;
  std::string name_;
  memory_resource* memory_ = nullptr;
  void* stream_ = nullptr;
  unsigned char* block_ = nullptr;  ///< encoded bytes, then the report
  std::size_t encoded_bytes_ = 0;
};

}  // namespace stash
