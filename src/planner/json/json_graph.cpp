// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "planner/graph/names.hpp"
#include "planner/json/json.hpp"
#include "planner/json/json_field.hpp"
#include "planner/json/json_writer.hpp"
#include "planner/json/text_kind.hpp"

namespace stash::planner {
namespace json_text {
namespace {

constexpr std::int64_t most32 = std::numeric_limits<std::int32_t>::max();
constexpr double largest_float = std::numeric_limits<float>::max();

/// Calls visit(name, member, least, most) for every attribute. One list for reader and writer.
template <class Visit>
void for_each_attribute(Visit visit) {
  using a = op_attributes;
  visit("kernel_h", &a::kernel_h, 1, most32);
  visit("kernel_w", &a::kernel_w, 1, most32);
  visit("stride_h", &a::stride_h, 1, most32);
  visit("stride_w", &a::stride_w, 1, most32);
  visit("pad_top", &a::pad_top, 0, most32);
  visit("pad_left", &a::pad_left, 0, most32);
  visit("pad_bottom", &a::pad_bottom, 0, most32);
  visit("pad_right", &a::pad_right, 0, most32);
  visit("ceil_mode", &a::ceil_mode, 0, 1);
  visit("groups", &a::groups, 1, most32);
  visit("out_features", &a::out_features, 0, largest_bytes);
  visit("bias", &a::bias, 0, 1);
  visit("epsilon", &a::epsilon, 0.0, largest_float);
  visit("statistics_momentum", &a::statistics_momentum, 0.0, 1.0);
  visit("fused_relu", &a::fused_relu, 0, 1);
  visit("negative_slope", &a::negative_slope, -largest_float, largest_float);
  visit("drop_probability", &a::drop_probability, 0.0, 1.0);
  visit("lrn_size", &a::lrn_size, 1, most32);
  visit("lrn_alpha", &a::lrn_alpha, -largest_float, largest_float);
  visit("lrn_beta", &a::lrn_beta, -largest_float, largest_float);
  visit("lrn_k", &a::lrn_k, -largest_float, largest_float);
}

value attributes_json(const op_attributes& a) {
  value out = value::members();
  const op_attributes defaults;
  for_each_attribute([&](const char* name, auto member, auto, auto) {
    if (a.*member == defaults.*member) return;
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(a.*member)>>) {
      out.set(name, finite(a.*member, name));
    } else {
      out.set(name, a.*member);
    }
  });
  return out;
}

op_attributes read_attributes(const field& f) {
  op_attributes a;
  for_each_attribute([&](const char* name, auto member, auto least, auto most) {
    using value_t = std::decay_t<decltype(a.*member)>;
    const auto found = f.find(name);
    if (!found) return;
    if constexpr (std::is_same_v<value_t, bool>) {
      a.*member = found->boolean();
    } else if constexpr (std::is_floating_point_v<value_t>) {
      a.*member = static_cast<value_t>(found->number(least, most));
    } else {
      a.*member = static_cast<value_t>(found->integer(least, most));
    }
  });
  return a;
}

value ref_json(const tensor_ref& r) {
  value out = value::members("storage", r.storage);
  put(out, "channel_begin", r.channel_begin, std::int64_t{0});
  put(out, "channels", r.channels, std::int64_t{0});
  return out;
}

tensor_ref read_ref(const field& f) {
  tensor_ref r;
  r.storage = f.at("storage").id<storage_id>();
  if (const auto v = f.find("channel_begin")) r.channel_begin = v->integer(0, largest_bytes);
  if (const auto v = f.find("channels")) r.channels = v->integer(0, largest_bytes);
  return r;
}

value refs_json(const std::vector<tensor_ref>& refs) {
  value::array out;
  for (const tensor_ref& r : refs)
    out.push_back(ref_json(r));
  return out;
}

value alternative_json(const stash_alternative& a) {
  value::array reads;
  for (const stash_read& r : a.reads) {
    value read = value::members("storage", r.storage, "need", name_of(r.what));
    if (r.slice != tensor_ref{r.storage, 0, 0}) read.set("slice", ref_json(r.slice));
    reads.push_back(std::move(read));
  }
  value out = value::members("form", a.form);
  put_list(out, "reads", std::move(reads));
  if (a.flops != 0.0) out.set("flops", finite(a.flops, "flops"));
  return out;
}

stash_alternative read_alternative(const field& f) {
  stash_alternative a;
  a.form = f.at("form").text();
  f.for_each("reads", [&](const field& e) {
    stash_read r;
    r.storage = e.at("storage").id<storage_id>();
    r.what = e.at("need").one_of<need>();
    const auto slice = e.find("slice");
    r.slice = slice ? read_ref(*slice) : tensor_ref{r.storage, 0, 0};
    a.reads.push_back(r);
  });
  if (const auto v = f.find("flops")) a.flops = v->number(0.0, std::numeric_limits<double>::max());
  return a;
}

value storage_json(const storage& s) {
  value out =
      value::members("name", s.name, "role", name_of(s.role), "type", name_of(s.type), "shape", s.shape);
  put(out, "fixed_bytes", s.fixed_bytes, std::int64_t{0});
  put(out, "bytes_per_sample", s.bytes_per_sample, std::int64_t{0});
  if (s.density != 1.0) out.set("density", finite(s.density, "density"));
  put(out, "window_taps", s.window_taps, 0);
  return out;
}

storage read_storage(const field& f) {
  storage s;
  s.name = f.at("name").text();
  s.role = f.at("role").one_of<storage_role>();
  s.type = f.at("type").one_of<dtype>();
  f.at("shape").for_each([&](const field& e) { s.shape.push_back(e.integer(0, largest_bytes)); });
  if (const auto v = f.find("fixed_bytes")) s.fixed_bytes = v->bytes();
  if (const auto v = f.find("bytes_per_sample")) s.bytes_per_sample = v->bytes();
  if (const auto v = f.find("density")) s.density = v->number(0.0, 1.0);
  if (const auto v = f.find("window_taps", "window_cells"))
    s.window_taps = static_cast<std::int32_t>(v->integer(0, most32));
  return s;
}

/// bytes(batch) and elements(batch) of this storage must not overflow, nor the sum over all storages.
void check_size(const storage& s, std::int64_t batch, const field& f, byte_total& total) {
  const auto times = [&](std::int64_t a, std::int64_t b) {
    if (b != 0 && a > largest_total_bytes / b) {
      f.fail(fmt::format("at most {} elements and bytes", largest_total_bytes), "more");
    }
    return a * b;
  };
  // A product that is zero in the end must not overflow on the way either.
  std::int64_t elements = batch;
  for (const std::int64_t d : s.shape)
    elements = times(elements, d == 0 ? 1 : d);
  total.add(s.fixed_bytes, f);
  total.add(times(s.bytes_per_sample, batch), f);
}

value op_json(const op& o) {
  value out = value::members("name", o.name, "kind", name_of(o.kind), "stage", name_of(o.stage));
  if (!o.label.empty()) out.set("label", o.label);
  put(out, "forward_op", o.forward_op, op_id());
  put_list(out, "attributes", attributes_json(o.attributes));
  put_list(out, "inputs", refs_json(o.inputs));
  put_list(out, "outputs", refs_json(o.outputs));
  put_list(out, "optional_outputs", o.optional_outputs);
  put_list(out, "parameters", o.parameters);
  put_list(out, "parameters_written", o.parameters_written);
  value::array alternatives;
  for (const stash_alternative& a : o.alternatives)
    alternatives.push_back(alternative_json(a));
  put_list(out, "alternatives", std::move(alternatives));
  put(out, "workspace_bytes", o.workspace_bytes, std::int64_t{0});
  if (o.flops != 0.0) out.set("flops", finite(o.flops, "flops"));
  if (o.seconds) out.set("seconds", finite(*o.seconds, "seconds"));
  put(out, "batch_begin", o.batch_begin, std::int64_t{0});
  put(out, "batch_end", o.batch_end, std::int64_t{-1});
  return out;
}

op read_op(const field& f) {
  op o;
  o.name = f.at("name").text();
  o.kind = f.at("kind").one_of<op_kind>();
  o.stage = f.at("stage").one_of<op_stage>();
  if (const auto v = f.find("label")) o.label = v->text();
  if (const auto v = f.find("forward_op")) o.forward_op = v->id<op_id>();
  if (const auto v = f.find("attributes")) o.attributes = read_attributes(*v);
  f.for_each("inputs", [&](const field& e) { o.inputs.push_back(read_ref(e)); });
  f.for_each("outputs", [&](const field& e) { o.outputs.push_back(read_ref(e)); });
  f.for_each("optional_outputs", [&](const field& e) { o.optional_outputs.push_back(e.id<storage_id>()); });
  f.for_each("parameters", [&](const field& e) { o.parameters.push_back(e.id<storage_id>()); });
  f.for_each("parameters_written",
             [&](const field& e) { o.parameters_written.push_back(e.id<storage_id>()); });
  f.for_each("alternatives", [&](const field& e) { o.alternatives.push_back(read_alternative(e)); });
  if (const auto v = f.find("workspace_bytes")) o.workspace_bytes = v->bytes();
  if (const auto v = f.find("flops")) o.flops = v->number(0.0, std::numeric_limits<double>::max());
  if (const auto v = f.find("seconds")) o.seconds = v->number(0.0, std::numeric_limits<double>::max());
  if (const auto v = f.find("batch_begin")) o.batch_begin = v->integer(0, most32);
  if (const auto v = f.find("batch_end")) o.batch_end = v->integer(-1, most32);
  return o;
}

value recipe_json(const recipe& r) {
  return value::members("target", r.target, "sources", r.sources, "ops", r.ops);
}

// Files of before recipes had one source and one op.
recipe read_recipe(const field& f) {
  if (const auto source = f.find("source"))
    return {f.at("target").id<storage_id>(), {source->id<storage_id>()}, {f.at("forward_op").id<op_id>()}};
  recipe r;
  r.target = f.at("target").id<storage_id>();
  f.at("sources").for_each([&](const field& e) { r.sources.push_back(e.id<storage_id>()); });
  f.at("ops").for_each([&](const field& e) { r.ops.push_back(e.id<op_id>()); });
  return r;
}

}  // namespace

value finite(double number, std::string_view what) {
  if (std::isfinite(number)) return number;
  throw error(errc::invalid_argument,
              fmt::format("to_json: {}: expected a finite number, got {}", what, number));
}

value finite(float number, std::string_view what) {
  // The double nearest to the float's shortest decimal form prints as that form; it nearly always reads back
  // as the same float, and where it does not, the float's own value does.
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  double decimal = 0;
  std::from_chars(digits.data(), end, decimal);
  const bool reads_back = std::abs(decimal) <= largest_float && static_cast<float>(decimal) == number;
  return finite(reads_back ? decimal : static_cast<double>(number), what);
}

void write_graph(text_writer& out, const graph& g) {
  out.member("name", g.name);
  out.member("batch", g.batch);
  out.member("classes", g.classes);
  out.list("storages", g.storages, storage_json);
  out.list("ops", g.ops, op_json);
  out.list("recompute", g.recipes, recipe_json);
}

graph read_graph(const field& f) {
  graph g;
  g.name = f.at("name").text();
  g.batch = f.at("batch").integer(1, most32);
  if (const auto v = f.find("classes")) g.classes = v->integer(0, most32);
  byte_total total;
  f.at("storages").for_each([&](const field& e) {
    g.storages.push_back(read_storage(e));
    check_size(g.storages.back(), g.batch, e, total);
  });
  f.at("ops").for_each([&](const field& e) { g.ops.push_back(read_op(e)); });
  f.for_each("recompute", [&](const field& e) { g.recipes.push_back(read_recipe(e)); });
  return g;
}

}  // namespace json_text

std::string to_json(const graph& g) {
  return json_text::written([&](json_text::text_writer& out) {
    out.member("format", "stash.graph");
    out.member("version", 1);
    json_text::write_graph(out, g);
  });
}

graph graph_from_json(std::string_view text) {
  return read_as(text_kind::graph, "graph_from_json", text, [text] {
    const json_text::value document = json_text::parse("graph_from_json", text);
    const json_text::field root("graph_from_json", document);
    json_text::check_header(root, "stash.graph", 1);
    graph g = json_text::read_graph(root);
    check_graph(g);
    return g;
  });
}

}  // namespace stash::planner
