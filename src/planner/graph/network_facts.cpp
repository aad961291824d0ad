// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/network_facts.hpp"

#include <algorithm>

namespace stash::planner {
namespace {

constexpr node_id first_node(0);

}  // namespace

network_facts::network_facts(const network& net) : net_(net) {
  find_consumers();
  find_joined_ops();
  find_in_place();
  find_concat_views();
}

void network_facts::find_consumers() {
  consumers_.assign(net_.nodes().size(), 0);
  sole_consumer_.assign(net_.nodes().size(), no_id);
  for (const node_id n : net_.nodes().ids()) {
    for (const node_id x : at(n).inputs) {
      ++consumers_[x];
      sole_consumer_[x] = n;
    }
  }
  for (const node_id n : net_.nodes().ids()) {
    if (consumers_[n] != 1) sole_consumer_[n] = no_id;
  }
}

void network_facts::find_joined_ops() {
  relu_into_pool_.assign(net_.nodes().size(), false);
  relu_into_norm_.assign(net_.nodes().size(), false);
  for (const node_id n : net_.nodes().ids()) {
    if (at(n).kind != node_kind::relu) continue;
    const node_id reader = sole_consumer_[n];
    const node_id x = at(n).inputs[0];
    if (reader.valid() && at(reader).kind == node_kind::max_pool) {
      relu_into_pool_[n] = true;
    } else if (at(x).kind == node_kind::batch_norm && sole_consumer_[x] == n) {
      relu_into_norm_[n] = true;
    }
  }
}

// Whether the backward op of the node that made this value reads the value itself.
bool network_facts::producer_reads_output(node_id n) const {
  switch (at(n).kind) {
    case node_kind::relu:
      return !relu_into_pool_[n];
    case node_kind::leaky_relu:
    case node_kind::relu6:
      return true;
    case node_kind::max_pool:
      return relu_into_pool_[input_of(n)];
    case node_kind::flatten:
    case node_kind::concat:
      return std::any_of(at(n).inputs.begin(), at(n).inputs.end(),
                         [this](node_id x) { return producer_reads_output(x); });
    default:
      return false;
  }
}

// Only this reader looks at the value, through whatever views lie between. The inputs of a concatenation
// may be views of it.
bool network_facts::used_only_by(node_id value, node_id reader) const {
  if (sole_consumer_[value] != reader) return false;
  const bool view = at(value).kind == node_kind::flatten || at(value).kind == node_kind::concat;
  return !view || std::all_of(at(value).inputs.begin(), at(value).inputs.end(),
                              [&](node_id x) { return used_only_by(x, value); });
}

bool network_facts::can_overwrite(node_id value, node_id reader) const {
  return used_only_by(value, reader) && !producer_reads_output(value) && at(value).kind != node_kind::input &&
         at(value).kind != node_kind::flatten;
}

void network_facts::find_in_place() {
  in_place_of_.assign(net_.nodes().size(), no_id);
  for (const node_id n : net_.nodes().ids()) {
    switch (at(n).kind) {
      case node_kind::relu:
        if (relu_into_norm_[n] || relu_into_pool_[n]) {
          in_place_of_[n] = input_of(n);  // no op of its own: the same storage by construction
          break;
        }
        [[fallthrough]];
      case node_kind::leaky_relu:
      case node_kind::relu6:
      case node_kind::dropout:
        if (can_overwrite(input_of(n), n)) in_place_of_[n] = input_of(n);
        break;
      case node_kind::add:
        for (const node_id x : at(n).inputs) {
          if (!in_place_of_[n].valid() && can_overwrite(x, n)) in_place_of_[n] = x;
        }
        break;
      case node_kind::flatten:
        in_place_of_[n] = input_of(n);
        break;
      default:
        break;
    }
  }
}

// Inputs of a concatenation are written straight into their channel slice, once; a value that a second
// concatenation wants too is copied there.
void network_facts::find_concat_views() {
  slice_.assign(net_.nodes().size(), {});
  for (node_id n = net_.nodes().next_id(); n-- > first_node;) {
    if (const node_id x = in_place_of_[n];
        x.valid() && slice_[n].concat.valid() && at(n).kind != node_kind::flatten) {
      slice_[x] = slice_[n];
    }
    if (at(n).kind != node_kind::concat) continue;
    std::int64_t begin = slice_[n].concat.valid() ? slice_[n].begin : 0;
    const node_id root = slice_[n].concat.valid() ? slice_[n].concat : n;
    for (const node_id x : at(n).inputs) {
      const bool viewable = !slice_[x].concat.valid() && at(x).kind != node_kind::input &&
                            at(x).kind != node_kind::flatten && last_in_place(x) == x;
      if (viewable) slice_[x] = {root, begin};
      begin += at(x).shape.back();
    }
  }
}

node_id network_facts::last_in_place(node_id n) const {
  const node_id reader = sole_consumer_[n];
  if (reader.valid() && in_place_of_[reader] == n && at(reader).kind != node_kind::flatten) {
    return last_in_place(reader);
  }
  return n;
}

double network_facts::density_of(node_id n, double relu_density) const {
  const node& v = at(n);
  switch (v.kind) {
    case node_kind::relu:
    case node_kind::relu6:
      return relu_density;
    case node_kind::max_pool: {
      // A pooled value is zero only if its whole window is. Neighbours are correlated: count a window as
      // two independent taps.
      const double x = relu_into_pool_[input_of(n)] ? relu_density : density_of(input_of(n), relu_density);
      return 1.0 - (1.0 - x) * (1.0 - x);
    }
    case node_kind::lrn:
    case node_kind::flatten:
      return density_of(input_of(n), relu_density);
    case node_kind::dropout:
      return density_of(input_of(n), relu_density) *
             (1.0 - static_cast<double>(v.attributes.drop_probability));
    case node_kind::concat: {
      double sum = 0, channels = 0;
      for (const node_id x : v.inputs) {
        const auto c = static_cast<double>(at(x).shape.back());
        sum += density_of(x, relu_density) * c;
        channels += c;
      }
      return sum / channels;
    }
    default:
      return 1.0;
  }
}

}  // namespace stash::planner
