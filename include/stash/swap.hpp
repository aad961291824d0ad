// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Moves tensors that wait for the backward pass out of the memory in which layers compute, to the host, and
/// brings them back in time; raw bytes, or encoded first and then moved.
///
///     swapper swaps({.space = memory_space::device});
///     swapped kept = swaps.swap_out(stashed_tensor(parse_encoding("bitmap"), x, {}, context),
///                                   {.name = "conv1", .needed_at = 7}, context);            // forward
///     ...
///     swaps.reached(5);                                                                    // backward
///     kept.restore(x_again, context);
///
/// Copies run asynchronously to the caller. In memory of the host each direction has a thread of its own; on
/// a device each has a stream of its own, which is ordered against the caller's stream by events, so that the
/// host never waits (what may wait says so). Copies are made in chunks of options.chunk_bytes.
///
/// Order. On the host a queued copy with a higher priority goes first, among equals the one that is needed
/// earlier, then the one that was asked for earlier; the order is looked at again after each chunk, and
/// somebody who waits for a copy moves it to the front. On a device a copy out is enqueued by the call that
/// asks for it; the order holds for what is brought back, until it is enqueued.
///
/// Failures. A call that throws has changed nothing. What fails asynchronously is thrown by the call that
/// waits for it, as error of the cause's code that names the tensor; nothing is lost by it: the source is
/// still what it was, and the same call tries again when it is called again. A tensor that could not be
/// brought back ahead of use because nobody had asked for it yet is brought back by the call that waits.
///
/// Thread safety: a swapper may be used by any number of threads, and handles of one swapper by different
/// threads; one handle by one thread at a time. On a device all of them must have the device current that
/// was current when the swapper was made.
///
/// Processes: a swapper belongs to the one that made it. In a child that was forked from it the swapper's
/// threads do not exist; calls of the swapper and its handles throw error(invalid_argument) there, but for
/// empty(), bytes(), name() and the destructors and reset(), which wait for nothing and give nothing back.
/// The parent's swapper goes on, and a child may make one of its own.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "stash/events.hpp"
#include "stash/execution.hpp"
#include "stash/memory.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/visibility.h"

namespace stash {

namespace runtime {
class swap_core;
struct swap_access;
struct swap_record;
}  // namespace runtime

/// How a swapper works; all of it is optional. Resources must outlive the swapper and its handles, also those
/// of tensors that are given by move.
struct swapper_options {
  /// Where the tensors are that are moved: host, or device.
  memory_space space = memory_space::host;
  /// Of the copies on the host; null: host_memory(), for a device pinned_memory(). For a device it must be
  /// pinned_host. Blocks are kept for later tensors of about the same size.
  memory_resource* host = nullptr;
  /// What is brought back lies here, unless it goes to the caller's memory; null: host_memory(), for a device
  /// device_memory(). Must be of `space`. On the host the swapper's threads call it.
  memory_resource* memory = nullptr;
  /// The most that copies on the host may take at one time. A tensor's block is larger than the tensor by at
  /// most an eighth.
  std::size_t host_limit_bytes = SIZE_MAX;
  /// The most that may lie in `memory` ahead of use at one time. What does not fit waits until something was
  /// used; a tensor that is larger waits until somebody waits for it, who is served whatever the limit. On a
  /// device this holds in the order of its work: copies wait there for layers whose memory they need. Memory
  /// that was left is kept within the same limit there, while more tensors may come back that take it.
  std::size_t residency_limit_bytes = std::size_t{256} << 20;
  /// On a device: the most that tensors given by move may take on their way out. What the context's stream
  /// does from then on waits for the first of them if they take more. SIZE_MAX: it never waits, and memory
  /// grows where layers are faster than the link. Not used on the host.
  std::size_t leaving_limit_bytes = std::size_t{256} << 20;
  /// How far ahead of reached() tensors are brought back, in positions, at least 0.
  std::int64_t ahead = std::numeric_limits<std::int64_t>::max();
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< bytes copied at a time, at least 1
  event_sink events{};                             ///< hears of late
};

/// What the caller says of a tensor that goes out; all of it is optional.
struct swap_request {
  /// Means that the caller will wait for the tensor without having said when.
  static constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min();

  std::string_view name{};           ///< for events and error messages; copied
  std::int32_t priority = 0;         ///< higher goes first
  std::int64_t needed_at = unknown;  ///< see swapper::reached(); earlier goes first
  /// Of a sparse stashed tensor: how many of its encoded bytes are in use (stored_size::bytes), which are the
  /// only ones to be copied. 0: what the report says on the host; on a device, where reading it would have to
  /// wait, all of them.
  std::size_t bytes_in_use = 0;
  /// An empty handle instead of error(out_of_memory) when there is not enough memory on the host.
  bool empty_if_full = false;
};

/// A tensor on the host, and on its way there or back. Move-only; a default-constructed or moved-from one is
/// empty. Except for reset(), empty(), bytes() and name(), calls throw error(invalid_argument) for an empty
/// handle, for a context of another space than the swapper's, and when the swapper is gone.
class STASH_API swapped {
 public:
  swapped() noexcept;  ///< empty
  /// `other` is empty afterwards; what this held before is given up as by reset().
  swapped(swapped&& other) noexcept;
  swapped& operator=(swapped&& other) noexcept;  ///< the same
  swapped(const swapped&) = delete;
  swapped& operator=(const swapped&) = delete;
  ~swapped();

  /// Gives up the tensor and all memory that the handle has. A copy that has not ended is given up too; on
  /// the host the chunk that is being copied is waited for, on a device a copy from or to the caller's memory
  /// for which neither wait_out() nor wait_in() was called. Destroying a handle does the same, so that
  /// handles have to go before the memory that was lent to them.
  void reset() noexcept;

  bool empty() const noexcept { return record_ == nullptr; }  ///< holds nothing
  std::size_t bytes() const noexcept;                         ///< that are copied, each way
  std::string_view name() const noexcept;                     ///< as given in the request

  /// After this the source may be written or given back: on the host when the call returns, on a device by
  /// work that is enqueued in the context's stream after it. Throws what the copy failed of; the source must
  /// then stay, and the next call copies again.
  void wait_out(const execution_context& context = {});
  /// True if the copy has ended and the source is free, on a device too. Never blocks.
  bool out_ended() const;

  /// Begins to bring the tensor back ahead of use, whatever position was reached, within the residency limit.
  /// Does nothing if that has begun.
  void swap_in(const execution_context& context = {});
  /// Begins to bring it back into `bytes` bytes of the caller's, which must be the tensor's bytes(). On a
  /// device the copy runs after the work of the context's stream. `to` belongs to the copy until wait_in()
  /// has succeeded, or reset() has returned. Throws error(invalid_argument) for a null address of more than 0
  /// bytes, for another size, and while a copy to the caller's memory is under way that has not failed.
  void swap_in(void* to, std::size_t bytes, const execution_context& context = {});
  /// Ends what swap_in() or the swapper began, or copies now. Returns where the bytes are, for work of the
  /// context's stream (on the host, for the caller): the caller's memory, which is its own again, or memory
  /// of the swapper until leave(). Throws what the copy failed of; the next call copies again.
  void* wait_in(const execution_context& context = {});
  /// Gives back the swapper's memory that wait_in() returned, after the work of the context's stream. The
  /// tensor stays on the host and can be brought back again. Does nothing if there is no such memory: what
  /// came back ahead of use stays, and so does what comes to the caller's memory.
  void leave(const execution_context& context = {});

  /// wait_in(), the dense tensor into `output`, leave(). Of a stashed tensor: see stashed_tensor::restore();
  /// on a device damaged bytes show only if `check` asks for stashed_tensor::check() too, which waits for the
  /// stream. Of a tensor view: `output` is dense and of the same type and element count. Throws
  /// error(invalid_argument) for raw bytes, or when the tensor comes to the caller's memory. When it throws,
  /// memory that wait_in() had returned before stays until leave().
  void restore(const tensor_view& output, const execution_context& context = {}, bool check = false);
  /// wait_in() of a stashed tensor as an object that owns the swapper's memory, for layers that read encoded
  /// bytes. The copy on the host stays until reset(). Throws error(invalid_argument) for other tensors, or
  /// when they come to the caller's memory.
  stashed_tensor take(const execution_context& context = {});

 private:
  friend class swapper;
  swapped(std::shared_ptr<runtime::swap_core> core, std::unique_ptr<runtime::swap_record> record) noexcept;
  runtime::swap_core& core_for(std::string_view function, const execution_context& context) const;
  runtime::swap_core& core_for(std::string_view function) const;

  std::shared_ptr<runtime::swap_core> core_;
  std::unique_ptr<runtime::swap_record> record_;
};

/// What a swapper has done and holds. Bytes of copies count when they have been made; on a device when they
/// have been enqueued.
struct swap_statistics {
  std::uint64_t bytes_out = 0, bytes_in = 0;  ///< copied since the swapper was made
  std::uint64_t bytes_in_flight = 0;          ///< asked for, or begun ahead of use, and not yet there
  std::uint64_t host_bytes = 0;               ///< blocks on the host that hold tensors
  std::uint64_t host_peak_bytes = 0;          ///< the most of that
  std::uint64_t resident_bytes = 0;  ///< in options.memory: brought back and not given back, or on its way
  std::uint64_t resident_peak_bytes = 0;  ///< the most of that
  std::uint64_t late = 0;      ///< tensors that somebody waited for before they had been brought back
  std::uint64_t failures = 0;  ///< copies that failed, those that succeeded later included
};

/// See the top of this page.
class STASH_API swapper {
 public:
  /// Throws error(invalid_argument) for an option that is not as described, error(out_of_memory), also where
  /// a thread cannot be made, and for a device error(unsupported) in a build without one, or
  /// error(device_failure).
  explicit swapper(const swapper_options& options = {});
  /// Waits for all copies to the host, and for those that have begun to come back or go to the caller's
  /// memory. Handles may outlive it, but can only be reset then.
  ~swapper();
  swapper(const swapper&) = delete;
  swapper& operator=(const swapper&) = delete;

  /// Begins to copy bytes to the host. They must stay as they are until wait_out() says otherwise. On a
  /// device the copy runs after the work of the context's stream. Throws error(out_of_memory) if there is
  /// none, or the limit does not allow it, unless request.empty_if_full; error(invalid_argument) for a null
  /// address of more than 0 bytes and for a context of another space. May wait for copies of handles that
  /// were given up before.
  swapped swap_out(const void* data, std::size_t bytes, const swap_request& request = {},
                   const execution_context& context = {});
  /// The same for a dense tensor. A pitched one is error(invalid_argument) (a stashed_tensor packs it), and
  /// so is one of an unknown type.
  swapped swap_out(const const_tensor_view& tensor, const swap_request& request = {},
                   const execution_context& context = {});
  /// The same for an encoded tensor, which must stay as it is until wait_out() says otherwise. Throws
  /// error(invalid_argument) for an empty one, or one of another space. If request has no name, the tensor's
  /// is used.
  swapped swap_out(const stashed_tensor& tensor, const swap_request& request = {},
                   const execution_context& context = {});
  /// The same; gives the tensor's memory back as soon as the copy has ended. On a device that is done in the
  /// order of the streams that take memory next, by the next call that finds the copy ended and sends or
  /// brings back a tensor, or by this one where leaving_limit_bytes is reached. The tensor stays the caller's
  /// if the call throws, or returns an empty handle.
  swapped swap_out(stashed_tensor&& tensor, const swap_request& request = {},
                   const execution_context& context = {});

  /// Says where the caller is. Positions are the caller's; they grow while tensors are used, for example the
  /// number of the layer counted from the end. Tensors that went out before this call, and are needed at
  /// `position` or later, but not more than options.ahead later, begin to come back in their order, within
  /// the residency limit, now and whenever the limit allows it again. A position before the last one begins a
  /// new round. Before the first call nothing comes back by itself.
  void reached(std::int64_t position);

  swap_statistics statistics() const;  ///< as of now; never blocks on a copy

 private:
  friend struct runtime::swap_access;
  explicit swapper(std::shared_ptr<runtime::swap_core> core) noexcept;
  swapped begin(std::unique_ptr<runtime::swap_record> record, stashed_tensor* owned,
                const swap_request& request, const execution_context& context);

  std::shared_ptr<runtime::swap_core> core_;
};

}  // namespace stash
