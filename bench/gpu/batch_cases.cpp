// encode_batch and decode_batch of 32 small maps in one call, as in bench/cases.

#include "stash/batch.hpp"

#include <utility>

#include "bench/cases/groups.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"

namespace stash::gpu {
namespace {

// Items of smoke runs are a tile each.
constexpr std::int64_t smoke_item_elements = 1 << 10;

/// One generated map, cut into items; each has its encoded form.
class batch {
 public:
  batch(const encoding& e, const map_form& form, map_source& maps) : x_(maps.after_relu(form)) {
    const std::int64_t each = x_->elements() / bench::batch_items;
    for (std::int64_t i = 0; i < bench::batch_items; ++i) {
      const tensor_view item = x_->part(i * each, {each});
      const stored_map& kept = stored_.add(e, form.type, each);
      to_encode_.push_back({e, item, kept.write()});
      to_decode_.push_back({e, kept.read(), item});
    }
    encode_all(nullptr);
    wait_for_device();
    stored_.verify();
  }

  void encode_all(void* stream) const { encode_batch(to_encode_, {}, on_device(stream)); }
  void decode_all(void* stream) const { decode_batch(to_decode_, {}, on_device(stream)); }
  const stored_maps& stored() const { return stored_; }
  std::uint64_t dense_bytes() const { return x_->bytes(); }

 private:
  shared_map x_;
  stored_maps stored_;
  std::vector<encode_item> to_encode_;
  std::vector<decode_item> to_decode_;
};

measured_case batch_case(const char* what, const encoding& e, bool encodes) {
  return {what + to_string(e),
          [e](dtype type) { return can_encode(e, type); },
          [=](const map_form& form, map_source& maps) -> prepared_case {
            const auto b = std::make_shared<batch>(e, form, maps);
            const std::uint64_t bytes = b->stored().bytes();
            return {[=](void* stream) {
                      if (encodes) b->stored().reset(stream);
                    },
                    [=](void* stream) { encodes ? b->encode_all(stream) : b->decode_all(stream); },
                    [=] { b->stored().verify(); },
                    b->dense_bytes() + bytes,
                    bytes,
                    b->dense_bytes()};
          },
          true,
          {bench::batch_items * smoke_item_elements, bench::batch_items * bench::batch_item_elements}};
}

}  // namespace

std::vector<measured_case> batch_cases() {
  std::vector<measured_case> cases;
  for (const encoding& e : bench::batched_encodings()) {
    cases.push_back(batch_case("encode_batch_of_32/", e, true));
    if (e.kind != encoding_kind::sign_mask) cases.push_back(batch_case("decode_batch_of_32/", e, false));
  }
  return cases;
}

}  // namespace stash::gpu
