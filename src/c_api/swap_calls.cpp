// SPDX-License-Identifier: Apache-2.0
// The swapper and its handles.

#include <memory>
#include <string>
#include <utility>

#include "c_api/c_types.hpp"
#include "c_api/guard.hpp"
#include "c_api/handle_types.hpp"
#include "stash/c_api.h"
#include "stash/swap.hpp"

using namespace stash::c_api;

struct stash_swapper {
  std::unique_ptr<stash::callback_memory> host, memory;  ///< null: the library's own; outlive the swapper
  listener to;
  std::unique_ptr<stash::swapper> swaps;
};

struct stash_swapped {
  std::unique_ptr<stash::callback_memory> memory;  ///< of a tensor that was given up with its handle
  stash::swapped tensor;
};

namespace {

// Errors of the swapper name the tensor, if it has a name.
constexpr renamed of_raw_arguments[] = {
    {"this", "swapper"}, {"tensor", "data"}, {"data"}, {"request"}, {"context"}};
constexpr renamed of_tensor_arguments[] = {{"this", "swapper"}, {"tensor"}, {"request"}, {"context"}};
constexpr renamed of_handle_arguments[] = {
    {"this", "swapper"}, {"tensor", "handle"}, {"request"}, {"context"}};
constexpr renamed of_swapped_arguments[] = {
    {"this", "swapped"}, {"tensor", "swapped"}, {"stored", "swapped"}, {"output"}, {"to"}, {"bytes"},
    {"context"}};
constexpr argument_names of_raw{of_raw_arguments, "data"}, of_tensor{of_tensor_arguments, "tensor"},
    of_handle{of_handle_arguments, "handle"}, of_swapped{of_swapped_arguments, "swapped"};

bool to_bool(std::string_view function, std::string_view argument, std::int32_t value) {
  if (value != 0 && value != 1) refuse(function, argument, "0 or 1", std::to_string(value));
  return value == 1;
}

stash::swap_request to_request(std::string_view function, const stash_swap_request* request) {
  stash::swap_request converted;
  if (request == nullptr) return converted;
  const stash_swap_request c = read(function, "request", request);
  if (c.name != nullptr) converted.name = c.name;
  converted.priority = c.priority;
  if (to_bool(function, "request.has_needed_at", c.has_needed_at)) {
    converted.needed_at = c.needed_at;
  } else if (c.needed_at != 0) {
    refuse(function, "request.needed_at", "0 where has_needed_at is 0", std::to_string(c.needed_at));
  }
  converted.bytes_in_use = c.bytes_in_use;
  converted.empty_if_full = to_bool(function, "request.null_if_full", c.null_if_full);
  return converted;
}

/// begin(swapper, request, context) gives the handle. True if it is not empty.
template <class Begin>
bool begin_out(std::string_view function, stash_swapper* swapper, const stash_swap_request* request,
               const stash_execution_context* context, stash_swapped** swapped, const Begin& begin) {
  stash_swapped*& result = checked(function, "swapped", swapped);
  stash::swapper& swaps = *checked(function, "swapper", swapper).swaps;
  auto made = std::make_unique<stash_swapped>();
  made->tensor = begin(swaps, to_request(function, request), to_context(function, context));
  const bool begun = !made->tensor.empty();
  result = begun ? made.release() : nullptr;
  return begun;
}

stash::swapped& tensor_of(std::string_view function, stash_swapped* swapped) {
  return checked(function, "swapped", swapped).tensor;
}

}  // namespace

int32_t stash_swapper_create(const stash_swapper_options* options, stash_swapper** swapper) {
  return guard(__func__, [&](std::string_view function) {
    stash_swapper*& result = checked(function, "swapper", swapper);
    auto made = std::make_unique<stash_swapper>();
    stash::swapper_options converted;
    if (options != nullptr) {
      const stash_swapper_options c = read(function, "options", options);
      converted.space = enumerator<stash::memory_space>(function, "options.space", c.space);
      made->host = to_memory(function, "options.host", c.host);
      made->memory = to_memory(function, "options.memory", c.memory);
      converted.host = made->host.get();
      converted.memory = made->memory.get();
      if (c.host_limit_bytes != 0) converted.host_limit_bytes = c.host_limit_bytes;
      if (c.residency_limit_bytes != 0) converted.residency_limit_bytes = c.residency_limit_bytes;
      if (c.leaving_limit_bytes != 0) converted.leaving_limit_bytes = c.leaving_limit_bytes;
      if (c.ahead != 0) converted.ahead = c.ahead;
      if (c.chunk_bytes != 0) converted.chunk_bytes = c.chunk_bytes;
      made->to = {c.notify, c.notify_user};
      if (c.notify != nullptr) converted.events = {&listener::hear, &made->to};
    }
    made->swaps = std::make_unique<stash::swapper>(converted);
    result = made.release();
  });
}

void stash_swapper_destroy(stash_swapper* swapper) {
  delete swapper;
}

int32_t stash_swapper_out(stash_swapper* swapper, const void* data, size_t bytes,
                          const stash_swap_request* request, const stash_execution_context* context,
                          stash_swapped** swapped) {
  return guard(__func__, of_raw, [&](std::string_view function) {
    begin_out(function, swapper, request, context, swapped,
              [&](stash::swapper& swaps, const stash::swap_request& r, const stash::execution_context& c) {
                return swaps.swap_out(data, bytes, r, c);
              });
  });
}

int32_t stash_swapper_out_tensor(stash_swapper* swapper, const stash_tensor_view* tensor,
                                 const stash_swap_request* request, const stash_execution_context* context,
                                 stash_swapped** swapped) {
  return guard(__func__, of_tensor, [&](std::string_view function) {
    begin_out(function, swapper, request, context, swapped,
              [&](stash::swapper& swaps, const stash::swap_request& r, const stash::execution_context& c) {
                return swaps.swap_out(stash::const_tensor_view(to_view(function, "tensor", tensor)), r, c);
              });
  });
}

int32_t stash_swapper_out_handle(stash_swapper* swapper, const stash_handle* handle,
                                 const stash_swap_request* request, const stash_execution_context* context,
                                 stash_swapped** swapped) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    const stash_handle& source = checked(function, "handle", handle);
    begin_out(function, swapper, request, context, swapped,
              [&](stash::swapper& swaps, const stash::swap_request& r, const stash::execution_context& c) {
                return swaps.swap_out(source.tensor, r, c);
              });
  });
}

int32_t stash_swapper_out_owned(stash_swapper* swapper, stash_handle** handle,
                                const stash_swap_request* request, const stash_execution_context* context,
                                stash_swapped** swapped) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    stash_handle*& owner = checked(function, "handle", handle);
    stash_handle& source = checked(function, "handle", owner);
    const bool begun = begin_out(
        function, swapper, request, context, swapped,
        [&](stash::swapper& swaps, const stash::swap_request& r, const stash::execution_context& c) {
          return swaps.swap_out(std::move(source.tensor), r, c);
        });
    if (!begun) return;
    (*swapped)->memory = std::move(source.memory);
    delete std::exchange(owner, nullptr);
  });
}

int32_t stash_swapper_reached(stash_swapper* swapper, int64_t position) {
  return guard(__func__, [&](std::string_view function) {
    checked(function, "swapper", swapper).swaps->reached(position);
  });
}

int32_t stash_swapper_statistics(const stash_swapper* swapper, stash_swap_statistics* statistics) {
  return guard(__func__, [&](std::string_view function) {
    const stash::swap_statistics now = checked(function, "swapper", swapper).swaps->statistics();
    write(function, "statistics", statistics,
          stash_swap_statistics{sizeof(stash_swap_statistics), now.bytes_out, now.bytes_in,
                                now.bytes_in_flight, now.host_bytes, now.host_peak_bytes, now.resident_bytes,
                                now.resident_peak_bytes, now.late, now.failures});
  });
}

int32_t stash_swapped_wait_out(stash_swapped* swapped, const stash_execution_context* context) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    tensor_of(function, swapped).wait_out(to_context(function, context));
  });
}

int32_t stash_swapped_out_ended(const stash_swapped* swapped, int32_t* ended) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    int32_t& result = checked(function, "ended", ended);
    result = checked(function, "swapped", swapped).tensor.out_ended() ? 1 : 0;
  });
}

int32_t stash_swapped_in(stash_swapped* swapped, const stash_execution_context* context) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    tensor_of(function, swapped).swap_in(to_context(function, context));
  });
}

int32_t stash_swapped_in_to(stash_swapped* swapped, void* to, size_t bytes,
                            const stash_execution_context* context) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    tensor_of(function, swapped).swap_in(to, bytes, to_context(function, context));
  });
}

int32_t stash_swapped_wait_in(stash_swapped* swapped, const stash_execution_context* context, void** data) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    void* const here = tensor_of(function, swapped).wait_in(to_context(function, context));
    if (data != nullptr) *data = here;
  });
}

int32_t stash_swapped_leave(stash_swapped* swapped, const stash_execution_context* context) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    tensor_of(function, swapped).leave(to_context(function, context));
  });
}

int32_t stash_swapped_restore(stash_swapped* swapped, const stash_tensor_view* output, int32_t check,
                              const stash_execution_context* context) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    tensor_of(function, swapped)
        .restore(to_view(function, "output", output), to_context(function, context),
                 to_bool(function, "check", check));
  });
}

int32_t stash_swapped_take(stash_swapped* swapped, const stash_execution_context* context,
                           stash_handle** handle) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    stash_handle*& result = checked(function, "handle", handle);
    auto made = std::make_unique<stash_handle>();
    made->tensor = tensor_of(function, swapped).take(to_context(function, context));
    result = made.release();
  });
}

int32_t stash_swapped_bytes(const stash_swapped* swapped, size_t* bytes) {
  return guard(__func__, of_swapped, [&](std::string_view function) {
    size_t& result = checked(function, "bytes", bytes);
    result = checked(function, "swapped", swapped).tensor.bytes();
  });
}

void stash_swapped_destroy(stash_swapped* swapped) {
  delete swapped;
}
