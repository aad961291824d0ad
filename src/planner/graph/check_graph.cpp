// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "encoders/message.hpp"
#include "planner/graph/byte_sizes.hpp"
#include "planner/graph/graph.hpp"
#include "planner/graph/names.hpp"
#include "planner/graph/op_rules.hpp"
#include "planner/graph/recipes.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using graph_rules::op_rule;
using graph_rules::op_rules;
using graph_rules::operand_count;

/// A name as messages show it.
std::string quoted(std::string_view name) {
  return fmt::format("'{}'", shortened(name));
}

/// Ids as messages show them.
std::vector<std::int32_t> numbers_of(const std::vector<storage_id>& ids) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(ids.size());
  for (const storage_id s : ids)
    numbers.push_back(s.number());
  return numbers;
}

/// A product of non-negative factors, or largest_total_bytes + 1 if it is larger than that.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  return b != 0 && a > largest_total_bytes / b ? largest_total_bytes + 1 : a * b;
}

bool has_fixed_size(storage_role role) {
  switch (role) {
    case storage_role::weight:
    case storage_role::weight_gradient:
    case storage_role::momentum:
    case storage_role::statistic:
    case storage_role::saved_statistic:
      return true;
    default:
      return false;
  }
}

/// Channels [begin, end) of a storage.
struct channel_range {
  std::int64_t begin;
  std::int64_t end;
};

/// The channels of a storage that have been written, as sorted, separate ranges.
class coverage {
 public:
  void add(channel_range r) {
    const auto first = std::find_if(ranges_.begin(), ranges_.end(),
                                    [&](const channel_range& x) { return x.end >= r.begin; });
    auto last = first;
    for (; last != ranges_.end() && last->begin <= r.end; ++last) {
      r = {std::min(r.begin, last->begin), std::max(r.end, last->end)};
    }
    ranges_.insert(ranges_.erase(first, last), r);
  }

  bool contains(channel_range r) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const channel_range& x) { return x.begin <= r.begin && r.end <= x.end; });
  }

 private:
  std::vector<channel_range> ranges_;
};

static_assert([] {
  for (std::size_t i = 0; i < op_rules.size(); ++i) {
    if (static_cast<std::size_t>(op_rules[i].kind) != i) return false;
  }
  return op_rules.size() == names_of<op_kind>.size();
}());

/// One class: a walk over the ops in which each check may rest on what the ones before it, and earlier ops,
/// have shown.
class checker {
 public:
  explicit checker(const graph& g) : g_(g) {}

  void run() {
    check_header();
    check_storages();
    written_.resize(g_.storages.size());
    for (const storage_id i : g_.storages.ids()) {
      const storage_role role = g_.storages[i].role;
      if (role == storage_role::image || role == storage_role::label)
        written_[i].add(all_channels(g_.storages[i]));
    }
    std::unordered_set<std::string_view> names;
    op_stage stage = op_stage::forward;
    for (const op_id number : g_.ops.ids()) {
      current_ = number;
      const op& o = g_.ops[current_];
      expect(!o.name.empty() && names.insert(o.name).second, "name", "a name of its own", quoted(o.name));
      expect(name_of(o.kind) != "unknown" && name_of(o.stage) != "unknown", "kind", "a known kind and stage",
             "another");
      expect(o.stage >= stage, "stage", "forward ops before backward ops before updates", name_of(o.stage));
      stage = o.stage;
      check_op(o);
    }
    check_recipes();
  }

 private:
  [[noreturn]] static void fail(const std::string& where, std::string_view expected, std::string_view got) {
    throw error(errc::bad_format, fmt::format("check_graph: {}: expected {}, got {}", where, expected, got));
  }

  /// A demand on the current op.
  template <class Got>
  void expect(bool holds, std::string_view field, std::string_view expected, const Got& got) const {
    if (holds) return;
    fail(fmt::format("ops[{}] '{}': {}", current_.number(), shortened(g_.ops[current_].name), field),
         expected, fmt::to_string(got));
  }

  void check_header() const {
    if (g_.batch < 1 || g_.batch > std::numeric_limits<std::int32_t>::max()) {
      fail("batch", "an integer from 1 to 2^31 - 1", fmt::to_string(g_.batch));
    }
    if (g_.classes < 0) fail("classes", "at least 0", fmt::to_string(g_.classes));
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
    if (g_.storages.size() > most || g_.ops.size() > most)
      fail("graph", "at most 2^31 - 1 storages and ops", "more");
  }

  void check_storages() const {
    std::unordered_set<std::string_view> names;
    std::int64_t total = 0;
    for (const storage_id i : g_.storages.ids()) {
      const storage& s = g_.storages[i];
      const auto demand = [&](bool holds, std::string_view field, std::string_view expected,
                              const auto& got) {
        if (!holds)
          fail(fmt::format("storages[{}] '{}': {}", i.number(), shortened(s.name), field), expected,
               fmt::to_string(got));
      };
      demand(!s.name.empty() && names.insert(s.name).second, "name", "a name of its own", shortened(s.name));
      demand(name_of(s.role) != "unknown" && name_of(s.type) != "unknown", "role", "a known role and type",
             "another");
      demand(s.shape.size() <= shape::max_rank, "shape", "at most 8 dimensions", s.shape.size());
      std::int64_t elements = 1;
      for (const std::int64_t d : s.shape) {
        demand(d >= 1, "shape", "positive dimensions", d);
        elements = bounded_product(elements, d);
      }
      const std::int64_t bytes = bounded_product(elements, static_cast<std::int64_t>(size_of(s.type)));
      const bool fixed = has_fixed_size(s.role);
      demand(s.fixed_bytes == (fixed ? bytes : 0), "fixed_bytes",
             fmt::format("{} for this role, shape and type", fixed ? bytes : 0), s.fixed_bytes);
      demand(s.bytes_per_sample == (fixed ? 0 : bytes), "bytes_per_sample",
             fmt::format("{} for this role, shape and type", fixed ? 0 : bytes), s.bytes_per_sample);
      const std::int64_t whole = bounded_product(bytes, fixed ? 1 : g_.batch);
      demand(whole <= largest_total_bytes - total, "shape", "sizes of at most 2^60 bytes in total", "more");
      total += whole;
      demand(s.density >= 0.0 && s.density <= 1.0, "density", "a share from 0 to 1", s.density);
      demand(s.window_taps >= 0, "window_taps", "at least 0", s.window_taps);
    }
  }

  static std::int64_t channels_of(const storage& s) { return s.shape.empty() ? 1 : s.shape.back(); }
  static channel_range all_channels(const storage& s) { return {0, channels_of(s)}; }

  channel_range range_of(const tensor_ref& r) const {
    return r.whole() ? all_channels(g_.at(r.storage))
                     : channel_range{r.channel_begin, r.channel_begin + r.channels};
  }

  coverage& written(storage_id id) { return written_[id]; }

  /// Shape of the part per sample.
  std::vector<std::int64_t> shape_of(const tensor_ref& r) const {
    std::vector<std::int64_t> dims = g_.at(r.storage).shape;
    if (dims.empty()) dims.push_back(1);
    const channel_range range = range_of(r);
    dims.back() = range.end - range.begin;
    return dims;
  }

  std::int64_t elements_of(const tensor_ref& r) const {
    std::int64_t n = 1;
    for (const std::int64_t d : shape_of(r))
      n *= d;
    return n;
  }

  void check_id(storage_id id, const std::string& field) const {
    expect(g_.storages.contains(id), field, fmt::format("the id of one of {} storages", g_.storages.size()),
           id.number());
  }

  void check_ref(const tensor_ref& r, const std::string& field) const {
    check_id(r.storage, field + ".storage");
    const std::int64_t channels = channels_of(g_.at(r.storage));
    expect(r.channel_begin >= 0 && r.channel_begin <= channels, field + ".channel_begin",
           fmt::format("0 to {}", channels), r.channel_begin);
    expect(r.whole() ? r.channel_begin == 0 : r.channels > 0 && r.channels <= channels - r.channel_begin,
           field + ".channels", fmt::format("a slice within {} channels", channels), r.channels);
  }

  void check_count(std::size_t got, operand_count expected, std::string_view field) const {
    expect(got >= expected.least && got <= expected.most, field,
           expected.least == expected.most ? fmt::format("{} operands", expected.least)
                                           : fmt::format("{} to {} operands", expected.least, expected.most),
           got);
  }

  static std::string indexed(std::string_view list, std::size_t i) { return fmt::format("{}[{}]", list, i); }

  void check_op(const op& o) {
    const op_rule& rule = op_rules[static_cast<std::size_t>(o.kind)];
    if (rule.stage) expect(o.stage == *rule.stage, "stage", name_of(*rule.stage), name_of(o.stage));
    expect(o.stage != op_stage::forward || o.kind != op_kind::sgd_update, "stage", "backward or update",
           "forward");
    expect(o.stage != op_stage::update || o.kind == op_kind::sgd_update || o.kind == op_kind::generic,
           "stage", "forward or backward", "update");
    check_count(o.inputs.size(), rule.inputs, "inputs");
    check_count(o.outputs.size(), rule.outputs, "outputs");
    check_count(o.parameters.size(), rule.parameters, "parameters");
    check_count(o.parameters_written.size(), rule.parameters_written, "parameters_written");
    check_count(o.optional_outputs.size(), {0, rule.optional_outputs}, "optional_outputs");
    check_forward_op(o, rule);
    check_batch_range(o);
    expect(o.workspace_bytes >= 0 && o.workspace_bytes <= largest_total_bytes, "workspace_bytes", "0 to 2^60",
           o.workspace_bytes);
    expect(o.flops >= 0.0 && o.flops <= std::numeric_limits<double>::max(), "flops",
           "a finite number of at least 0", o.flops);
    if (o.seconds) {
      expect(*o.seconds >= 0.0 && *o.seconds <= std::numeric_limits<double>::max(), "seconds",
             "a finite time of at least 0", *o.seconds);
    }
    check_parameters(o.parameters, "parameters", true);
    check_parameters(o.parameters_written, "parameters_written", false);
    check_inputs(o);
    check_alternatives(o, rule);
    check_outputs(o, rule);
    check_shapes(o);
    for (const tensor_ref& r : o.outputs)
      written(r.storage).add(range_of(r));
    for (const storage_id s : o.optional_outputs)
      written(s).add(all_channels(g_.at(s)));
    for (const storage_id s : o.parameters_written)
      written(s).add(all_channels(g_.at(s)));
  }

  void check_forward_op(const op& o, const op_rule& rule) const {
    const bool in_range = o.forward_op.valid() && o.forward_op < current_;
    expect(in_range || o.forward_op == no_id, "forward_op", "-1 or the index of an earlier op",
           o.forward_op.number());
    expect(in_range || !rule.forward, "forward_op", "the index of its forward op", o.forward_op.number());
    if (!in_range) return;
    const op& f = g_.op_at(o.forward_op);
    expect(o.stage == op_stage::backward && f.stage == op_stage::forward, "forward_op",
           "a forward op, named by a backward op", quoted(f.name));
    if (rule.forward) expect(f.kind == *rule.forward, "forward_op", name_of(*rule.forward), name_of(f.kind));
  }

  void check_batch_range(const op& o) const {
    if (o.batch_end == -1) {
      expect(o.batch_begin == 0, "batch_begin", "0 where batch_end is -1", o.batch_begin);
      return;
    }
    expect(o.batch_end <= g_.batch, "batch_end", fmt::format("-1 or at most {}", g_.batch), o.batch_end);
    expect(o.batch_begin >= 0 && o.batch_begin < o.batch_end, "batch_begin",
           fmt::format("0 to {}", o.batch_end - 1), o.batch_begin);
  }

  void check_parameters(const std::vector<storage_id>& ids, std::string_view list, bool read) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      check_id(ids[i], indexed(list, i));
      const storage& s = g_.at(ids[i]);
      expect(has_fixed_size(s.role), indexed(list, i), "a storage of fixed size", name_of(s.role));
      if (!read) continue;
      if (s.role == storage_role::saved_statistic || s.role == storage_role::weight_gradient) {
        expect(written(ids[i]).contains(all_channels(s)), indexed(list, i), "something an earlier op wrote",
               quoted(s.name));
      }
    }
  }

  void check_inputs(const op& o) {
    for (std::size_t i = 0; i < o.inputs.size(); ++i) {
      const tensor_ref& r = o.inputs[i];
      check_ref(r, indexed("inputs", i));
      const storage& s = g_.at(r.storage);
      expect(s.role != storage_role::auxiliary && !has_fixed_size(s.role), indexed("inputs", i),
             "a feature map, gradient, image or label", name_of(s.role));
      expect(o.stage == op_stage::backward || s.role != storage_role::gradient, indexed("inputs", i),
             "no gradient in the forward stage", quoted(s.name));
      expect(o.stage == op_stage::forward || s.role != storage_role::feature_map, indexed("inputs", i),
             "no feature map after the forward stage: alternatives name those", quoted(s.name));
      expect(written(r.storage).contains(range_of(r)), indexed("inputs", i),
             "channels written by earlier ops", quoted(s.name) + " before they are");
    }
  }

  void check_alternatives(const op& o, const op_rule& rule) {
    expect(!rule.needs_alternative || !o.alternatives.empty(), "alternatives", "at least one", 0);
    expect(o.stage == op_stage::backward || o.alternatives.empty(), "alternatives", "none outside backward",
           o.alternatives.size());
    for (std::size_t i = 0; i < o.alternatives.size(); ++i) {
      const stash_alternative& a = o.alternatives[i];
      expect(!a.form.empty(), indexed("alternatives", i) + ".form", "a name", "an empty one");
      expect(a.flops >= 0.0 && a.flops <= std::numeric_limits<double>::max(),
             indexed("alternatives", i) + ".flops", "a finite number of at least 0", a.flops);
      for (std::size_t j = 0; j < a.reads.size(); ++j) {
        const std::string field = fmt::format("alternatives[{}].reads[{}]", i, j);
        const stash_read& r = a.reads[j];
        check_id(r.storage, field + ".storage");
        expect(name_of(r.what) != "unknown", field + ".need", "a known need", "another");
        expect(graph_rules::can_take(o.kind, r.what), field + ".need",
               fmt::format("one that {} can take", name_of(o.kind)), name_of(r.what));
        expect(r.slice.storage == r.storage, field + ".slice.storage", fmt::to_string(r.storage.number()),
               r.slice.storage.number());
        check_ref(r.slice, field + ".slice");
        const storage& s = g_.at(r.storage);
        // Backward ops write gradients only, so what is covered was written in the forward stage.
        expect(s.role != storage_role::gradient && !has_fixed_size(s.role), field,
               "a feature map, auxiliary storage or image", name_of(s.role));
        expect(written(r.storage).contains(range_of(r.slice)), field,
               "a storage written in the forward stage", quoted(s.name));
      }
    }
  }

  void check_outputs(const op& o, const op_rule& rule) const {
    const storage_role expected =
        o.stage == op_stage::forward ? storage_role::feature_map : storage_role::gradient;
    for (std::size_t i = 0; i < o.outputs.size(); ++i) {
      check_ref(o.outputs[i], indexed("outputs", i));
      const storage& s = g_.at(o.outputs[i].storage);
      expect(s.role == expected, indexed("outputs", i), name_of(expected), name_of(s.role));
      const channel_range to = range_of(o.outputs[i]);
      for (const tensor_ref& r : o.inputs) {
        const channel_range from = range_of(r);
        if (r.storage != o.outputs[i].storage || from.end <= to.begin || to.end <= from.begin) continue;
        const bool same = from.begin == to.begin && from.end == to.end;
        expect(rule.in_place && same, indexed("outputs", i),
               rule.in_place ? "channels of an input exactly or none of them" : "no channels of an input",
               quoted(s.name));
      }
    }
    for (std::size_t i = 0; i < o.optional_outputs.size(); ++i) {
      check_id(o.optional_outputs[i], indexed("optional_outputs", i));
      const storage& s = g_.at(o.optional_outputs[i]);
      expect(s.role == storage_role::auxiliary, indexed("optional_outputs", i), "auxiliary", name_of(s.role));
    }
  }

  void expect_elements(std::int64_t got, std::int64_t expected, const std::string& field) const {
    expect(got == expected, field, fmt::format("{} elements per sample", expected), got);
  }

  void expect_parameter(const op& o, std::size_t i, std::int64_t expected) const {
    const std::int64_t got = g_.at(o.parameters[i]).elements(1);
    expect(got == expected, indexed("parameters", i), fmt::format("{} elements", expected), got);
  }

  void check_shapes(const op& o) const {
    switch (o.kind) {
      case op_kind::conv2d:
        return check_convolution(o);
      case op_kind::max_pool:
      case op_kind::relu_max_pool:
      case op_kind::avg_pool:
        return check_pool(o);
      case op_kind::global_avg_pool:
        return expect_elements(elements_of(o.outputs[0]), shape_of(o.inputs[0]).back(), "outputs[0]");
      case op_kind::dense:
        return check_dense(o);
      case op_kind::batch_norm:
        for (std::size_t i = 0; i < o.parameters.size(); ++i)
          expect_parameter(o, i, shape_of(o.inputs[0]).back());
        check_written_like_parameters(o, o);
        return expect_elements(elements_of(o.outputs[0]), elements_of(o.inputs[0]), "outputs[0]");
      case op_kind::softmax_cross_entropy:
        return check_loss(o);
      case op_kind::generic:
      case op_kind::sgd_update:
        return;
      case op_kind::softmax_cross_entropy_backward:
        break;
      default:
        if (!op_rules[static_cast<std::size_t>(o.kind)].forward) return check_elementwise(o);
    }
    if (o.stage == op_stage::backward) check_backward(o, g_.op_at(o.forward_op));
  }

  void check_elementwise(const op& o) const {
    const std::int64_t elements = elements_of(o.outputs[0]);
    for (std::size_t i = 0; i < o.inputs.size(); ++i) {
      expect_elements(elements_of(o.inputs[i]), elements, indexed("inputs", i));
    }
    if (o.kind == op_kind::accumulate) {
      expect(o.inputs[0] == o.outputs[0], "outputs[0]", "inputs[0], the sum", "another tensor");
    }
    for (std::size_t i = 0; i < o.optional_outputs.size(); ++i) {
      expect_elements(g_.at(o.optional_outputs[i]).elements(1), elements, indexed("optional_outputs", i));
    }
  }

  /// {H, W, C} of the input and of the output of an op with windows, the attributes checked.
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> windowed_shapes(const op& o) const {
    const op_attributes& a = o.attributes;
    const std::vector<std::int64_t> x = shape_of(o.inputs[0]);
    const std::vector<std::int64_t> y = shape_of(o.outputs[0]);
    expect(x.size() == 3, "inputs[0]", "a shape of {H, W, C}", fmt::format("{} dimensions", x.size()));
    expect(y.size() == 3, "outputs[0]", "a shape of {H, W, C}", fmt::format("{} dimensions", y.size()));
    expect(a.kernel_h >= 1 && a.kernel_w >= 1 && a.stride_h >= 1 && a.stride_w >= 1, "attributes",
           "kernel and stride of at least 1", "less");
    expect(a.pad_top >= 0 && a.pad_left >= 0 && a.pad_bottom >= 0 && a.pad_right >= 0, "attributes",
           "padding of at least 0", "less");
    const std::int64_t rows =
        window_count(x[0], a.kernel_h, a.stride_h, a.pad_top, a.pad_bottom, a.ceil_mode);
    const std::int64_t columns =
        window_count(x[1], a.kernel_w, a.stride_w, a.pad_left, a.pad_right, a.ceil_mode);
    expect(y[0] == rows && y[1] == columns, "outputs[0]", fmt::format("{} x {} windows", rows, columns),
           fmt::format("{} x {}", y[0], y[1]));
    return {x, y};
  }

  void check_convolution(const op& o) const {
    const auto [x, y] = windowed_shapes(o);
    const op_attributes& a = o.attributes;
    expect(y[2] == a.out_features, "outputs[0]", fmt::format("{} channels", a.out_features), y[2]);
    expect(a.groups >= 1 && x[2] % a.groups == 0 && y[2] % a.groups == 0, "attributes.groups",
           "a divisor of both channel counts", a.groups);
    const std::int64_t window = bounded_product(a.kernel_h, a.kernel_w);
    expect_parameter(o, 0, bounded_product(bounded_product(y[2], x[2] / a.groups), window));
    if (o.parameters.size() > 1) expect_parameter(o, 1, y[2]);
  }

  void check_dense(const op& o) const {
    const std::int64_t outputs = elements_of(o.outputs[0]);
    expect_elements(outputs, o.attributes.out_features, "outputs[0]");
    expect_parameter(o, 0, bounded_product(outputs, elements_of(o.inputs[0])));
    if (o.parameters.size() > 1) expect_parameter(o, 1, outputs);
  }

  void check_pool(const op& o) const {
    const auto [x, y] = windowed_shapes(o);
    const op_attributes& a = o.attributes;
    expect(y[2] == x[2], "outputs[0]", fmt::format("{} channels", x[2]), y[2]);
    // A window of nothing but padding would have no maximum and no mean.
    expect(std::max(a.pad_top, a.pad_bottom) < a.kernel_h && std::max(a.pad_left, a.pad_right) < a.kernel_w,
           "attributes", "padding below the kernel", "more");
    for (std::size_t i = 0; i < o.optional_outputs.size(); ++i) {
      const storage& s = g_.at(o.optional_outputs[i]);
      expect_elements(s.elements(1), elements_of(o.outputs[0]), indexed("optional_outputs", i));
      expect(s.window_taps == std::int64_t{a.kernel_h} * a.kernel_w, indexed("optional_outputs", i),
             "the window_taps of this op", s.window_taps);
    }
  }

  void check_loss(const op& o) const {
    const std::int64_t classes = elements_of(o.inputs[0]);
    expect_elements(elements_of(o.outputs[0]), classes, "outputs[0]");
    expect(classes == g_.classes, "inputs[0]", fmt::format("{} classes", g_.classes), classes);
    check_labels(o, 1);
  }

  void check_labels(const op& o, std::size_t input) const {
    const storage& s = g_.at(o.inputs[input].storage);
    expect(s.role == storage_role::label && s.type == dtype::s32 && s.elements(1) == 1,
           indexed("inputs", input), "one s32 label per sample", quoted(s.name));
  }

  /// Gradients have the sizes of what they belong to.
  void check_backward(const op& o, const op& f) const {
    if (o.kind == op_kind::softmax_cross_entropy_backward) {
      check_labels(o, 0);
    } else {
      expect_elements(elements_of(o.inputs[0]), elements_of(f.outputs[0]), "inputs[0]");
    }
    if (!o.outputs.empty())
      expect_elements(elements_of(o.outputs[0]), elements_of(f.inputs[0]), "outputs[0]");
    check_written_like_parameters(o, f);
    for (std::size_t i = 0; i < o.parameters.size(); ++i)
      expect_parameter(o, i, g_.at(f.parameters[i]).elements(1));
  }

  void check_written_like_parameters(const op& o, const op& f) const {
    expect(o.parameters_written.size() <= f.parameters.size(), "parameters_written",
           fmt::format("at most the {} of '{}'", f.parameters.size(), shortened(f.name)),
           o.parameters_written.size());
    for (std::size_t i = 0; i < o.parameters_written.size(); ++i) {
      const std::int64_t expected = g_.at(f.parameters[i]).elements(1);
      const std::int64_t got = g_.at(o.parameters_written[i]).elements(1);
      expect(got == expected, indexed("parameters_written", i), fmt::format("{} elements", expected), got);
    }
  }

  void check_recipe_ops(const recipe& r, const recipe_facts& facts, const std::string& where) const {
    if (r.ops.empty() || r.ops.size() > most_recipe_ops) {
      fail(where, fmt::format("1 to {} ops", most_recipe_ops), fmt::to_string(r.ops.size()));
    }
    for (std::size_t k = 0; k < r.ops.size(); ++k) {
      const op_id o = r.ops[k];
      const std::string this_op = fmt::format("{}[{}]", where, k);
      if (!g_.ops.contains(o))
        fail(this_op, fmt::format("the index of one of {} ops", g_.ops.size()), fmt::to_string(o.number()));
      const std::string name = quoted(g_.op_at(o).name);
      if (k > 0 && o <= r.ops[k - 1]) fail(this_op, "ops in the order in which they run", name);
      if (!facts.can_run_again(o)) {
        fail(this_op,
             "a batch_norm with fused_relu or a generic forward op, which makes whole maps of whole maps",
             name);
      }
    }
  }

  void check_recipe(const recipe& r, const recipe_facts& facts, const std::string& where) const {
    check_recipe_ops(r, facts, where + ".ops");
    const op_id last = r.ops.back();
    const std::vector<tensor_ref>& made = g_.op_at(last).outputs;
    const bool makes_it =
        std::any_of(made.begin(), made.end(), [&](const tensor_ref& t) { return t.storage == r.target; });
    if (!makes_it || facts.last_writer(r.target) != last) {
      fail(where + ".target",
           fmt::format("an output of '{}', not overwritten", shortened(g_.op_at(last).name)),
           fmt::to_string(r.target.number()));
    }
    for (std::size_t k = 0; k < r.ops.size(); ++k) {
      if (!facts.is_computed_with_others(r.ops[k], r.target)) continue;
      fail(fmt::format("{}.ops[{}]", where, k),
           "an op whose parameters nobody writes before the last reader of the target",
           quoted(g_.op_at(r.ops[k]).name));
    }
    const recipe_facts::inputs in = facts.inputs_of(r.ops);
    if (in.overwritten.valid())
      fail(where + ".sources", "maps that are not overwritten", quoted(g_.at(in.overwritten).name));
    const bool reads_itself = std::find(in.sources.begin(), in.sources.end(), r.target) != in.sources.end();
    if (in.sources != r.sources || reads_itself) {
      fail(where + ".sources",
           fmt::format("what its ops read and do not make, [{}]", fmt::join(numbers_of(in.sources), ", ")),
           fmt::format("[{}]", fmt::join(numbers_of(r.sources), ", ")));
    }
  }

  void check_recipes() const {
    if (g_.recipes.empty()) return;
    const recipe_facts facts(g_);
    for (const recipe_id i : g_.recipes.ids())
      check_recipe(g_.recipes[i], facts, fmt::format("recompute[{}]", i.number()));
  }

  const graph& g_;
  op_id current_;
  id_vector<storage_id, coverage> written_;
};

}  // namespace

void check_graph(const graph& g) {
  checker(g).run();
}

}  // namespace stash::planner
