// SPDX-License-Identifier: Apache-2.0
// Names, sizes, encode and decode.

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "c_api/c_types.hpp"
#include "c_api/guard.hpp"
#include "stash/batch.hpp"
#include "stash/c_api.h"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"

using namespace stash::c_api;

namespace {

constexpr renamed input_arguments[] = {{"encoding", "input.encoding"}};

/// Names that stay where they are, for callers that keep the address.
const std::vector<std::string>& target_names() {
  static const std::vector<std::string> names = stash::cpu_targets();
  return names;
}

}  // namespace

size_t stash_value_format_count(void) {
  return stash::value_formats.size();
}

int32_t stash_value_format_at(size_t index, stash_value_format* format) {
  return guard(__func__, [&](std::string_view function) {
    if (index >= stash::value_formats.size()) {
      refuse(function, "index", fmt::format("a number below {}", stash::value_formats.size()),
             fmt::format("{}", index));
    }
    const stash::value_format_info& row = stash::value_formats[index];
    // A name is a literal and ends with a zero byte.
    write(function, "format", format,
          {sizeof(stash_value_format), row.name.data(), static_cast<int32_t>(row.format), row.bits,
           row.mantissa_bits, row.bias, row.scaled ? 1 : 0, 0, row.largest()});
  });
}

int32_t stash_parse_encoding(const char* name, stash_encoding* encoding) {
  return guard(__func__, [&](std::string_view function) {
    const stash::encoding e = stash::parse_encoding(&checked(function, "name", name));
    write(function, "encoding", encoding, from_encoding(e));
  });
}

int32_t stash_encoding_name(const stash_encoding* encoding, char* name, size_t capacity) {
  return guard(__func__, [&](std::string_view function) {
    const std::string text = stash::to_string(to_encoding(function, encoding));
    checked(function, "name", name);
    if (capacity <= text.size()) {
      throw stash::error(stash::errc::capacity_exceeded,
                         fmt::format("{}: capacity: expected at least {} bytes, got {}", function,
                                     text.size() + 1, capacity));
    }
    std::memcpy(name, text.c_str(), text.size() + 1);
  });
}

int32_t stash_is_lossless(const stash_encoding* encoding, int32_t* lossless) {
  return guard(__func__, [&](std::string_view function) {
    int32_t& result = checked(function, "lossless", lossless);
    const stash::encoding e = to_encoding(function, encoding);
    // Refuses what does not exist, where the C++ function, which never fails, has no way to say so.
    static_cast<void>(stash::to_string(e));
    result = stash::is_lossless(e) ? 1 : 0;
  });
}

int32_t stash_encoded_bytes_bound(const stash_encoding* encoding, int32_t source, int64_t elements,
                                  size_t* bytes) {
  return guard(__func__, [&](std::string_view function) {
    size_t& result = checked(function, "bytes", bytes);
    result = stash::encoded_bytes_bound(to_encoding(function, encoding), to_dtype(function, "source", source),
                                        elements);
  });
}

int32_t stash_encoded_bytes_at_density(const stash_encoding* encoding, int32_t source, int64_t elements,
                                       double density, size_t* bytes) {
  return guard(__func__, [&](std::string_view function) {
    size_t& result = checked(function, "bytes", bytes);
    result = stash::encoded_bytes_at_density(to_encoding(function, encoding),
                                             to_dtype(function, "source", source), elements, density);
  });
}

int32_t stash_encoded_bytes_exact(const stash_encoding* encoding, const stash_tensor_view* input,
                                  const stash_execution_context* context, size_t* bytes) {
  return guard(__func__, [&](std::string_view function) {
    size_t& result = checked(function, "bytes", bytes);
    result = stash::encoded_bytes_exact(to_encoding(function, encoding), to_view(function, "input", input),
                                        to_context(function, context));
  });
}

int32_t stash_workspace_bytes(const stash_encoding* encoding, int32_t source, int64_t elements,
                              const stash_execution_context* context, size_t* bytes) {
  return guard(__func__, [&](std::string_view function) {
    size_t& result = checked(function, "bytes", bytes);
    result = stash::workspace_bytes(to_encoding(function, encoding), to_dtype(function, "source", source),
                                    elements, to_context(function, context));
  });
}

const char* stash_cpu_target_name(size_t index) {
  const char* name = nullptr;
  guard(__func__, [&](std::string_view) {
    if (index < target_names().size()) name = target_names()[index].c_str();
  });
  return name;
}

int32_t stash_cpu_target(const char** name) {
  return guard(__func__, [&](std::string_view function) {
    const char*& result = checked(function, "name", name);
    const std::string current = stash::cpu_target();
    for (const std::string& known : target_names()) {
      if (known == current) result = known.c_str();
    }
  });
}

int32_t stash_set_cpu_target(const char* name) {
  return guard(__func__,
               [&](std::string_view function) { stash::set_cpu_target(&checked(function, "name", name)); });
}

int32_t stash_encode(const stash_encoding* encoding, const stash_tensor_view* input,
                     const stash_encoded_view* output, const stash_workspace_view* workspace,
                     const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::encode(to_encoding(function, encoding), to_view(function, "input", input),
                  encoded_argument(function, "output", output).output(), to_workspace(function, workspace),
                  to_context(function, context));
  });
}

int32_t stash_decode(const stash_encoded_tensor* input, const stash_tensor_view* output,
                     const stash_workspace_view* workspace, const stash_execution_context* context) {
  return guard(__func__, {input_arguments}, [&](std::string_view function) {
    stash::decode(encoded_tensor_argument(function, "input", input).get(),
                  to_view(function, "output", output), to_workspace(function, workspace),
                  to_context(function, context));
  });
}

int32_t stash_canonicalise(const stash_encoded_tensor* input, const stash_encoded_view* output,
                           const stash_execution_context* context) {
  return guard(__func__, {input_arguments}, [&](std::string_view function) {
    stash::canonicalise(encoded_tensor_argument(function, "input", input).get(),
                        encoded_argument(function, "output", output).output(), to_context(function, context));
  });
}

namespace {

constexpr renamed encode_items[] = {{"input", "dense"}, {"output", "encoded"}};
constexpr renamed decode_items[] = {{"input", "encoded"}, {"output", "dense"}};

/// The items of a batch in C++, and the arenas that they point to.
template <class Item>
struct batch {
  std::vector<encoded_argument> encoded;
  std::vector<Item> items;
};

/// make(encoding, dense, encoded) gives one item.
template <class Item, class Make>
batch<Item> to_batch(std::string_view function, const stash_batch_item* items, size_t count,
                     const Make& make) {
  batch<Item> result;
  if (count == 0) return result;
  // The stride is the caller's size of a structure, which may be another than this library's.
  const std::size_t stride = checked_size(function, "items", items, first_size<stash_batch_item>);
  result.encoded.reserve(count);
  result.items.reserve(count);
  const auto* bytes = reinterpret_cast<const unsigned char*>(items);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "items[" + std::to_string(i) + "]";
    const auto* address = reinterpret_cast<const stash_batch_item*>(bytes + i * stride);
    const stash_batch_item item = read(function, name, address);
    if (item.struct_size != stride) {
      refuse(function, name, "struct_size " + std::to_string(stride) + " as in items[0]",
             std::to_string(item.struct_size));
    }
    const stash::encoding e = to_encoding(function, item.encoding, name + ".encoding");
    const stash::tensor_view dense = to_view(function, name + ".dense", item.dense);
    result.encoded.emplace_back(function, name + ".encoded", item.encoded);
    result.items.push_back(make(e, dense, result.encoded.back()));
  }
  return result;
}

}  // namespace

int32_t stash_encode_batch(const stash_batch_item* items, size_t count, const stash_workspace_view* workspace,
                           const stash_execution_context* context) {
  return guard(__func__, {encode_items}, [&](std::string_view function) {
    const auto list = to_batch<stash::encode_item>(
        function, items, count,
        [](const stash::encoding& e, const stash::tensor_view& dense, const encoded_argument& encoded) {
          return stash::encode_item{e, dense, encoded.output()};
        });
    stash::encode_batch(list.items, to_workspace(function, workspace), to_context(function, context));
  });
}

int32_t stash_decode_batch(const stash_batch_item* items, size_t count, const stash_workspace_view* workspace,
                           const stash_execution_context* context) {
  return guard(__func__, {decode_items}, [&](std::string_view function) {
    const auto list = to_batch<stash::decode_item>(
        function, items, count,
        [](const stash::encoding& e, const stash::tensor_view& dense, const encoded_argument& encoded) {
          return stash::decode_item{{e, dense.type, dense.dims, encoded.input()}, dense};
        });
    stash::decode_batch(list.items, to_workspace(function, workspace), to_context(function, context));
  });
}

int32_t stash_csr_export32(const stash_encoded_tensor* input, const stash_csr32_view* output,
                           const stash_execution_context* context, int64_t* nonzeros) {
  return guard(__func__, {input_arguments}, [&](std::string_view function) {
    const stash_csr32_view c = read(function, "output", output);
    const stash::csr32_view out{c.row_offsets, c.columns, c.values,
                                to_dtype(function, {"output", "type"}, c.type), c.capacity};
    int64_t& result = checked(function, "nonzeros", nonzeros);
    result = stash::csr_export32(encoded_tensor_argument(function, "input", input).get(), out,
                                 to_context(function, context));
  });
}
