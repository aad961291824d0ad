// SPDX-License-Identifier: Apache-2.0
// encode_batch and decode_batch of 32 maps of 256 KiB, compared with one call on a map of 8 MiB.

#include <string>
#include <utility>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr std::int64_t batch_bytes = batch_items * batch_item_elements * 4;

// One large map, cut into items; each has its encoded form.
struct batch {
  batch(const encoding& e, const case_setup& setup)
      : x(map_after_relu(setup)), whole(std::make_shared<encoded>(e, *x, setup.context)) {
    const auto part = static_cast<std::size_t>(x->elements() / batch_items);
    parts.reserve(static_cast<std::size_t>(batch_items));  // views below point into the parts
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch_items); ++i) {
      const tensor_view view{x->values().subspan(i * part, part).data(), dtype::f32, memory_space::host,
                             map_shape(setup.bytes / batch_items), 0};
      parts.emplace_back(e, encoded_bytes_exact(e, view, setup.context));
      to_encode.push_back({e, view, parts.back().write()});
      to_decode.push_back({{e, view.type, view.dims, parts.back().read()}, view});
      encoded_bytes += parts.back().bytes();
    }
    encode_batch(to_encode, {}, setup.context);
  }

  std::shared_ptr<tensor> x;
  std::shared_ptr<encoded> whole;
  std::vector<encoded> parts;
  std::vector<encode_item> to_encode;
  std::vector<decode_item> to_decode;
  std::int64_t encoded_bytes = 0;
};

prepared_call prepare_encode(const encoding& e, const case_setup& setup) {
  const auto b = std::make_shared<batch>(e, setup);
  const execution_context context = setup.context;
  return {[=] {
            for (const encode_item& item : b->to_encode)
              *item.output.report = {};
            encode_batch(b->to_encode, {}, context);
          },
          b->x->bytes() + b->encoded_bytes, b->encoded_bytes,
          [=] { encode(e, b->x->read(), b->whole->write(), {}, context); }};
}

prepared_call prepare_decode(const encoding& e, const case_setup& setup) {
  const auto b = std::make_shared<batch>(e, setup);
  const execution_context context = setup.context;
  return {[=] { decode_batch(b->to_decode, {}, context); }, b->x->bytes() + b->encoded_bytes,
          b->encoded_bytes,
          [=] {
            decode({e, b->x->view().type, b->x->view().dims, b->whole->read()}, b->x->view(), {}, context);
          }};
}

}  // namespace

std::vector<encoding> batched_encodings() {
  std::vector<encoding> all;
  for (const char* const name : {"sign_mask", "bitmap", "csr", "bitmap_fp8", "fp16", "fp8", "mxfp8_e4m3"}) {
    all.push_back(parse_encoding(name));
    if (all.back().values != value_format::source) all.back().underflow = underflow_rule::keep_nonzero;
  }
  return all;
}

std::vector<bench_case> batch_cases() {
  std::vector<bench_case> cases;
  for (const encoding& e : batched_encodings()) {
    const std::string name = to_string(e);
    cases.push_back({"encode_batch_of_32/" + name,
                     [e](const case_setup& s) { return prepare_encode(e, s); },
                     {batch_bytes}});
    if (e.kind == encoding_kind::sign_mask) continue;
    cases.push_back({"decode_batch_of_32/" + name,
                     [e](const case_setup& s) { return prepare_decode(e, s); },
                     {batch_bytes}});
  }
  return cases;
}

}  // namespace stash::bench
