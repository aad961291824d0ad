// SPDX-License-Identifier: Apache-2.0
// Owning handles and size queries.

#include <memory>

#include "c_api/c_types.hpp"
#include "c_api/guard.hpp"
#include "c_api/handle_types.hpp"
#include "stash/c_api.h"
#include "stash/stashed_tensor.hpp"

using namespace stash::c_api;

struct stash_size_query {
  stash::size_query query;
};

namespace {

// Errors of handles name the tensor, if it has a name.
constexpr renamed arguments[] = {{"encoding"}, {"input"},          {"source"},
                                 {"dims"},     {"options"},        {"context"},
                                 {"output"},   {"this", "handle"}, {"stored", "handle"}};
constexpr renamed stored_arguments[] = {{"encoding", "stored.encoding"}};
constexpr argument_names of_new{arguments, "options.name"};
constexpr argument_names of_handle{arguments, "handle"};

/// make(options) gives the tensor of the new handle.
template <class Make>
void create(std::string_view function, const stash_handle_options* options, stash_handle** handle,
            const Make& make) {
  stash_handle*& result = checked(function, "handle", handle);
  auto made = std::make_unique<stash_handle>();
  listener to;
  stash::stash_options converted;
  if (options != nullptr) {
    const stash_handle_options c = read(function, "options", options);
    converted.capacity = c.capacity;
    made->memory = to_memory(function, "options.memory", c.memory);
    converted.memory = made->memory.get();
    to = {c.notify, c.notify_user};
    if (c.notify != nullptr) converted.events = {&listener::hear, &to};
    if (c.name != nullptr) converted.name = c.name;
  }
  made->tensor = make(converted);
  result = made.release();
}

void create_query(stash_size_query*& result, const stash::size_query& query) {
  result = std::make_unique<stash_size_query>(stash_size_query{query}).release();
}

}  // namespace

int32_t stash_handle_create(const stash_encoding* encoding, const stash_tensor_view* input,
                            const stash_handle_options* options, const stash_execution_context* context,
                            stash_handle** handle) {
  return guard(__func__, of_new, [&](std::string_view function) {
    create(function, options, handle, [&](const stash::stash_options& o) {
      return stash::stashed_tensor(to_encoding(function, encoding), to_view(function, "input", input), o,
                                   to_context(function, context));
    });
  });
}

int32_t stash_handle_reserve(const stash_encoding* encoding, int32_t source, int32_t rank,
                             const int64_t* dims, const stash_handle_options* options,
                             const stash_execution_context* context, stash_handle** handle) {
  return guard(__func__, of_new, [&](std::string_view function) {
    create(function, options, handle, [&](const stash::stash_options& o) {
      if (rank > 0) checked(function, "dims", dims);
      return stash::stashed_tensor::reserve(
          to_encoding(function, encoding), to_dtype(function, "source", source),
          to_shape(function, "dims", rank, dims), o, to_context(function, context));
    });
  });
}

int32_t stash_handle_restore(const stash_handle* handle, const stash_tensor_view* output,
                             const stash_execution_context* context) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    checked(function, "handle", handle)
        .tensor.restore(to_view(function, "output", output), to_context(function, context));
  });
}

int32_t stash_handle_check(const stash_handle* handle, const stash_execution_context* context) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    checked(function, "handle", handle).tensor.check(to_context(function, context));
  });
}

int32_t stash_handle_rewind(stash_handle* handle, const stash_execution_context* context) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    checked(function, "handle", handle).tensor.rewind(to_context(function, context));
  });
}

int32_t stash_handle_bytes(const stash_handle* handle, size_t* bytes, size_t* dense_bytes) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    const stash::stashed_tensor& tensor = checked(function, "handle", handle).tensor;
    if (bytes != nullptr) *bytes = tensor.bytes();
    if (dense_bytes != nullptr) *dense_bytes = tensor.dense_bytes();
  });
}

int32_t stash_handle_view(stash_handle* handle, stash_encoded_view* view) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    const stash::encoded_view stored = checked(function, "handle", handle).tensor.output();
    stash_encoded_view c = STASH_INIT(stash_encoded_view);
    c.data = stored.data;
    c.bytes = stored.bytes;
    c.report = from_report(stored.report);
    write(function, "view", view, c);
  });
}

int32_t stash_handle_encoding(const stash_handle* handle, stash_encoding* encoding) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    write(function, "encoding", encoding, from_encoding(checked(function, "handle", handle).tensor.how()));
  });
}

int32_t stash_handle_tensor(stash_handle* handle, stash_encoded_tensor* tensor) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    stash_handle& from = checked(function, "handle", handle);
    const stash::encoded_tensor stored = from.tensor.stored();
    const stash::encoded_view bytes = from.tensor.output();
    from.encoding = from_encoding(stored.how);
    from.bytes = STASH_INIT(stash_encoded_view);
    from.bytes.data = bytes.data;
    from.bytes.bytes = bytes.bytes;
    from.bytes.report = from_report(bytes.report);
    stash_encoded_tensor c = STASH_INIT(stash_encoded_tensor);
    c.encoding = &from.encoding;
    c.type = static_cast<int32_t>(stored.type);
    c.rank = stored.dims.rank();
    for (int axis = 0; axis < c.rank; ++axis)
      c.dims[axis] = stored.dims[axis];
    c.bytes = &from.bytes;
    write(function, "tensor", tensor, c);
  });
}

int32_t stash_handle_size(const stash_handle* handle, const stash_execution_context* context,
                          stash_size_query** query) {
  return guard(__func__, of_handle, [&](std::string_view function) {
    stash_size_query*& result = checked(function, "query", query);
    create_query(result, checked(function, "handle", handle).tensor.size(to_context(function, context)));
  });
}

void stash_handle_destroy(stash_handle* handle) {
  delete handle;
}

int32_t stash_size_query_create(const stash_encoded_tensor* stored, const stash_execution_context* context,
                                stash_size_query** query) {
  return guard(__func__, {stored_arguments}, [&](std::string_view function) {
    stash_size_query*& result = checked(function, "query", query);
    create_query(result, stash::size_query(encoded_tensor_argument(function, "stored", stored).get(),
                                           to_context(function, context)));
  });
}

int32_t stash_size_query_count(const stash_encoding* encoding, const stash_tensor_view* input,
                               stash_encode_report* report, const stash_execution_context* context,
                               stash_size_query** query) {
  return guard(__func__, [&](std::string_view function) {
    stash_size_query*& result = checked(function, "query", query);
    create_query(result, stash::size_query(to_encoding(function, encoding), to_view(function, "input", input),
                                           to_report(report), to_context(function, context)));
  });
}

int32_t stash_size_query_ready(const stash_size_query* query, int32_t* ready) {
  return guard(__func__, [&](std::string_view function) {
    const bool is = checked(function, "query", query).query.ready();
    checked(function, "ready", ready) = is ? 1 : 0;
  });
}

int32_t stash_size_query_wait(const stash_size_query* query, stash_stored_size* size) {
  return guard(__func__, [&](std::string_view function) {
    const stash::stored_size known = checked(function, "query", query).query.wait();
    stash_stored_size c = STASH_INIT(stash_stored_size);
    c.bytes = known.bytes;
    c.overflow_bytes = known.overflow_bytes;
    c.nonzeros = known.nonzeros;
    c.density = known.density;
    c.status = known.status;
    write(function, "size", size, c);
  });
}

void stash_size_query_destroy(stash_size_query* query) {
  delete query;
}
