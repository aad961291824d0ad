// SPDX-License-Identifier: Apache-2.0
// Whole training steps: every map that a network keeps is encoded, one call after the other, then every form
// is read again. Next to it stands one copy that moves the bytes of all calls.

#include <array>
#include <functional>
#include <utility>

#include "bench/gpu/cases.hpp"
#include "bench/gpu/network_maps.hpp"
#include "bench/gpu/stored_map.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;

struct step_size {
  std::int64_t images, side;
};
// The first is for seeing that everything works.
constexpr std::array<step_size, 2> sizes = {{{1, 32}, {32, 224}}};

/// Of all maps of a step, up to a size that every type has as a generated map.
std::int64_t generated_elements(const std::vector<kept_form>& forms) {
  constexpr std::int64_t unit = 32 << 10;
  return (elements_of(forms) + unit - 1) / unit * unit;
}

/// Every map has memory of its own, and so has what is read back: the bytes that a copy moves are distinct as
/// well, and a second-level cache would serve maps that evict each other.
class kept_step {
 public:
  kept_step(std::vector<kept_form> forms, const map_form& form, map_source& maps)
      : forms_(std::move(forms)),
        maps_(maps.after_relu(form)),
        back_(std::make_shared<device_map>(form.type, form.dims())) {
    for (const kept_form& f : forms_)
      stored_.add(f.how, form.type, f.elements());
    encode_all(nullptr);
    wait_for_device();
    stored_.verify();
  }

  void run(void* stream) const {
    encode_all(stream);
    decode_all(stream);
  }
  const stored_maps& stored() const { return stored_; }
  std::uint64_t dense_bytes() const {
    return static_cast<std::uint64_t>(elements_of(forms_)) * size_of(maps_->view().type);
  }
  /// Each map is read by its encoder and written by its decoder, each form written and read. A pooling moves
  /// its pooled map and that map's gradient, too, and the gradient of a ReLU reads one as large as its map.
  std::uint64_t moved_bytes() const {
    std::int64_t other_values = 0;
    for (const kept_form& f : forms_) {
      if (f.is_index()) other_values += 2 * f.pooled.elements();
      if (f.how.kind == encoding_kind::sign_mask) other_values += f.elements();
    }
    const std::uint64_t value = size_of(maps_->view().type);
    return 2 * (dense_bytes() + stored_.bytes()) + static_cast<std::uint64_t>(other_values) * value;
  }

 private:
  /// Calls body(form, stored, at) for every map; `at` is where its values begin.
  template <class Body>
  void for_each_map(const Body& body) const {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < forms_.size(); at += forms_[i++].dims.elements())
      body(forms_[i], stored_[i], at);
  }

  void encode_all(void* stream) const {
    for_each_map([&](const kept_form& f, const stored_map& stored, std::int64_t at) {
      const tensor_view map = maps_->part(at, f.dims);
      if (f.is_index()) {
        max_pool_forward(map, back_->part(at, f.pooled), f.window, stored.write(), rule, on_device(stream));
      } else {
        encode(f.how, map, stored.write(), {}, on_device(stream));
      }
    });
  }

  /// Masks and indices have no dense form: their readers are the gradients. What the map's memory holds is as
  /// good a gradient as any.
  void decode_all(void* stream) const {
    for_each_map([&](const kept_form& f, const stored_map& stored, std::int64_t at) {
      const tensor_view back = back_->part(at, f.dims);
      if (f.is_index()) {
        max_pool_backward(maps_->part(at, f.pooled),
                          {window_index_of(f.window), maps_->part(at, f.pooled).type,
                           maps_->part(at, f.pooled).dims, stored.read()},
                          back, f.window, on_device(stream));
      } else if (f.how.kind == encoding_kind::sign_mask) {
        relu_backward(maps_->part(at, f.dims),
                      {f.how, maps_->part(at, f.dims).type, maps_->part(at, f.dims).dims, stored.read()},
                      back, rule, on_device(stream));
      } else {
        decode({f.how, back.type, back.dims, stored.read()}, back, {}, on_device(stream));
      }
    });
  }

  std::vector<kept_form> forms_;
  shared_map maps_, back_;
  stored_maps stored_;  // of each form
};

/// The step whose maps the form has space for.
std::vector<kept_form> forms_of(const map_form& form) {
  for (const step_size& s : sizes) {
    std::vector<kept_form> forms = resnet50_forms(s.images, s.side);
    if (generated_elements(forms) == form.elements()) return forms;
  }
  throw failure("sequence/resnet50_b32: form.bytes: expected one of the case's own sizes, got " +
                std::to_string(form.bytes));
}

prepared_case prepared(const std::shared_ptr<kept_step>& kept, std::function<void(void*)> run) {
  return {[=](void* stream) { kept->stored().reset(stream); },
          std::move(run),
          [=] { kept->stored().verify(); },
          kept->moved_bytes(),
          kept->stored().bytes(),
          kept->dense_bytes()};
}

prepared_case prepare_calls(const map_form& form, map_source& maps) {
  const auto kept = std::make_shared<kept_step>(forms_of(form), form, maps);
  return prepared(kept, [=](void* stream) { kept->run(stream); });
}

/// The same calls, recorded: without what they take on the host.
prepared_case prepare_graph(const map_form& form, map_source& maps) {
  const auto kept = std::make_shared<kept_step>(forms_of(form), form, maps);
  const stream in;
  const auto recorded = std::make_shared<graph>(in, [&] { kept->run(in.handle()); });
  return prepared(kept, [=](void* stream) { recorded->launch_in(stream); });
}

}  // namespace

std::vector<measured_case> sequence_cases() {
  std::vector<measured_case> cases = {{"sequence/resnet50_b32", takes_floats, prepare_calls},
                                      {"sequence_as_graph/resnet50_b32", takes_floats, prepare_graph}};
  for (measured_case& c : cases) {
    for (const step_size& s : sizes)
      c.own_elements.push_back(generated_elements(resnet50_forms(s.images, s.side)));
  }
  return cases;
}

}  // namespace stash::gpu
