// SPDX-License-Identifier: Apache-2.0
// encode_batch and decode_batch of 32 small maps in one call, as in bench/cases, and 32 calls for a map each:
// what a call takes besides moving its bytes.

#include "stash/batch.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/groups.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"

namespace stash::gpu {
namespace {

// Items of smoke runs are a tile each.
constexpr std::int64_t smoke_item_elements = 1 << 10;
// The smallest and a common map of ResNet-50 with 32 images.
constexpr std::int64_t small_map_elements = 32 * 7 * 7 * 512, common_map_elements = 32 * 14 * 14 * 1024;

/// One generated map, cut into items; each has its encoded form.
class batch {
 public:
  batch(const encoding& e, const map_form& form, map_source& maps) : x_(maps.after_relu(form)) {
    const std::int64_t each = x_->elements() / bench::batch_items;
    for (std::int64_t i = 0; i < bench::batch_items; ++i) {
      const tensor_view item = x_->part(i * each, {each});
      const stored_map& kept = stored_.add(e, form.type, each);
      to_encode_.push_back({e, item, kept.write()});
      to_decode_.push_back({{e, item.type, item.dims, kept.read()}, item});
    }
    encode_all(nullptr);
    wait_for_device();
    stored_.verify();
  }

  void encode_all(void* stream) const { encode_batch(to_encode_, {}, on_device(stream)); }
  void decode_all(void* stream) const { decode_batch(to_decode_, {}, on_device(stream)); }
  void encode_each(void* stream) const {
    for (const encode_item& item : to_encode_)
      encode(item.how, item.input, item.output, {}, on_device(stream));
  }
  void decode_each(void* stream) const {
    for (const decode_item& item : to_decode_)
      decode(item.input, item.output, {}, on_device(stream));
  }
  const stored_maps& stored() const { return stored_; }
  std::uint64_t dense_bytes() const { return x_->bytes(); }

 private:
  shared_map x_;
  stored_maps stored_;
  std::vector<encode_item> to_encode_;
  std::vector<decode_item> to_decode_;
};

/// All items in one call, or in a call each: recorded then, so that nothing waits for the host.
measured_case batch_case(const std::string& what, const encoding& e, bool encodes, bool one_call) {
  std::vector<std::int64_t> items = {smoke_item_elements};
  if (one_call) {
    items.push_back(bench::batch_item_elements);
  } else {
    items.insert(items.end(), {common_map_elements, small_map_elements});
  }
  for (std::int64_t& elements : items)
    elements *= bench::batch_items;
  return {what + to_string(e), [e](dtype type) { return can_encode(e, type); },
          [=](const map_form& form, map_source& maps) -> prepared_case {
            const auto b = std::make_shared<batch>(e, form, maps);
            const std::uint64_t bytes = b->stored().bytes();
            std::function<void(void*)> run;
            if (one_call) {
              run = [=](void* stream) { encodes ? b->encode_all(stream) : b->decode_all(stream); };
            } else {
              const stream in;
              const auto each = [&] { encodes ? b->encode_each(in.handle()) : b->decode_each(in.handle()); };
              // Once before: a kernel is loaded when it is launched for the first time.
              if (encodes) b->stored().reset(in.handle());
              each();
              const auto recorded = std::make_shared<graph>(in, each);
              wait_for_device();
              run = [=](void* stream) { recorded->launch_in(stream); };
            }
            return {[=](void* stream) {
                      if (encodes) b->stored().reset(stream);
                    },
                    std::move(run),
                    [=] { b->stored().verify(); },
                    b->dense_bytes() + bytes,
                    bytes,
                    b->dense_bytes()};
          },
          true, std::move(items)};
}

}  // namespace

std::vector<measured_case> batch_cases() {
  std::vector<measured_case> cases;
  for (const encoding& e : bench::batched_encodings()) {
    for (const bool one_call : {true, false}) {
      const std::string form = one_call ? "batch_of_32/" : "32_calls/";
      cases.push_back(batch_case("encode_" + form, e, true, one_call));
      if (e.kind != encoding_kind::sign_mask)
        cases.push_back(batch_case("decode_" + form, e, false, one_call));
    }
  }
  return cases;
}

}  // namespace stash::gpu
