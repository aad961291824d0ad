// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "planner/graph/names.hpp"
#include "planner/json/json.hpp"
#include "planner/json/json_field.hpp"
#include "planner/json/json_writer.hpp"
#include "planner/json/text_kind.hpp"

namespace stash::planner {
namespace {

using json_text::byte_total;
using json_text::field;
using json_text::finite;
using json_text::put;
using json_text::put_list;
using json_text::value;

constexpr std::int64_t most32 = std::numeric_limits<std::int32_t>::max();
using window_taps_t = decltype(encoding::window_taps);
constexpr double largest_double = std::numeric_limits<double>::max();

value encoding_json(const encoding& e) {
  value out = value::members("kind", name_of(e.kind));
  if (e.values != value_format::source) out.set("values", name_of(e.values));
  if (e.underflow != underflow_rule::to_zero) out.set("underflow", name_of(e.underflow));
  if (e.rule != framework_rule::tensorflow) out.set("rule", name_of(e.rule));
  put(out, "window_taps", e.window_taps, window_taps_t{0});
  return out;
}

encoding read_encoding(const field& f) {
  encoding e;
  e.kind = f.at("kind").one_of<encoding_kind>();
  if (const auto v = f.find("values")) e.values = v->one_of<value_format>();
  if (const auto v = f.find("underflow")) e.underflow = v->one_of<underflow_rule>();
  if (const auto v = f.find("rule")) e.rule = v->one_of<framework_rule>();
  if (const auto v = f.find("window_taps", "window_cells"))
    e.window_taps = static_cast<window_taps_t>(v->integer(0, std::numeric_limits<window_taps_t>::max()));
  return e;
}

value choice_json(const stash_choice& c) {
  value out = value::members("kind", name_of(c.kind));
  if (c.stored != encoding{}) out.set("stored", encoding_json(c.stored));
  put(out, "recipe", c.recipe, recipe_id());
  put(out, "bytes_before", c.bytes_before, std::int64_t{0});
  put(out, "bytes_after", c.bytes_after, std::int64_t{0});
  if (c.density != 1.0) out.set("density", finite(c.density, "choices: density"));
  put(out, "swapped", c.swapped, false);
  put_list(out, "reason", c.reason);
  return out;
}

stash_choice read_choice(const field& f) {
  stash_choice c;
  c.kind = f.at("kind").one_of<stash_kind>();
  if (const auto v = f.find("stored")) c.stored = read_encoding(*v);
  if (const auto v = f.find("recipe")) c.recipe = v->id<recipe_id>();
  if (const auto v = f.find("bytes_before")) c.bytes_before = v->bytes();
  if (const auto v = f.find("bytes_after")) c.bytes_after = v->bytes();
  if (const auto v = f.find("density")) c.density = v->number(0.0, 1.0);
  if (const auto v = f.find("swapped")) c.swapped = v->boolean();
  if (const auto v = f.find("reason")) c.reason = v->text();
  return c;
}

value buffer_json(const buffer& b) {
  return value::members("storage", b.storage, "form", name_of(b.form), "bytes", b.bytes, "offset", b.offset,
                        "first_step", b.first_step, "last_step", b.last_step);
}

buffer read_buffer(const field& f) {
  buffer b;
  b.storage = f.at("storage").id<storage_id>();
  b.form = f.at("form").one_of<buffer_form>();
  b.bytes = f.at("bytes").bytes();
  b.offset = f.at("offset").bytes();
  b.first_step = static_cast<std::int32_t>(f.at("first_step").integer(0, most32));
  b.last_step = static_cast<std::int32_t>(f.at("last_step").integer(0, most32));
  return b;
}

value step_json(const step& s) {
  value out = value::members("kind", name_of(s.kind));
  put(out, "op", s.op, op_id{-1});
  put(out, "storage", s.storage, storage_id{-1});
  put_list(out, "inputs", s.inputs);
  put_list(out, "outputs", s.outputs);
  put_list(out, "optional_outputs", s.optional_outputs);
  put_list(out, "stash", s.stash);
  return out;
}

step read_step(const field& f) {
  step s;
  s.kind = f.at("kind").one_of<step_kind>();
  if (const auto v = f.find("op")) s.op = v->id<op_id>();
  if (const auto v = f.find("storage")) s.storage = v->id<storage_id>();
  f.for_each("inputs", [&](const field& e) { s.inputs.push_back(e.id<buffer_id>()); });
  f.for_each("outputs", [&](const field& e) { s.outputs.push_back(e.id<buffer_id>()); });
  f.for_each("optional_outputs", [&](const field& e) { s.optional_outputs.push_back(e.id<buffer_id>()); });
  f.for_each("stash", [&](const field& e) { s.stash.push_back(e.id<buffer_id>()); });
  return s;
}

/// Calls visit(name, value) for every size but wall_op. One list for reader and writer.
template <class Sizes, class Visit>
void for_each_size(Sizes& s, Visit visit) {
  visit("baseline_peak", s.baseline_peak);
  visit("baseline_peak_total", s.baseline_peak_total);
  visit("planned_peak", s.planned_peak);
  visit("planned_peak_total", s.planned_peak_total);
  visit("wall", s.wall);
  visit("boundary", s.boundary);
  visit("bound", s.bound);
  visit("max_live", s.max_live);
  visit("parameter_bytes", s.parameter_bytes);
  visit("workspace_bytes", s.workspace_bytes);
  visit("host_bytes", s.host_bytes);
}

value sizes_json(const plan_sizes& s) {
  value out = value::members();
  for_each_size(s, [&](const char* name, std::int64_t v) { out.set(name, v); });
  put(out, "wall_op", s.wall_op, op_id{-1});
  return out;
}

plan_sizes read_sizes(const field& f) {
  plan_sizes s;
  for_each_size(s, [&](const char* name, std::int64_t& v) {
    if (const auto found = f.find(name)) v = found->bytes();
  });
  if (const auto v = f.find("wall_op")) s.wall_op = v->id<op_id>();
  return s;
}

value times_json(const plan_times& t) {
  return value::members("model", t.model, "unplanned_ms", finite(t.unplanned_ms, "times: unplanned_ms"),
                        "simulated_ms", finite(t.simulated_ms, "times: simulated_ms"), "bound_ms",
                        finite(t.bound_ms, "times: bound_ms"), "relaxed", t.relaxed, "update_ms",
                        finite(t.update_ms, "times: update_ms"));
}

value step_time_json(const step_time& t) {
  return value::members("begin_ms", finite(t.begin_ms, "timeline: begin_ms"), "end_ms",
                        finite(t.end_ms, "timeline: end_ms"));
}

step_time read_step_time(const field& f) {
  return {f.at("begin_ms").number(0.0, largest_double), f.at("end_ms").number(0.0, largest_double)};
}

plan_times read_times(const field& f) {
  plan_times t;
  if (const auto v = f.find("model")) t.model = v->text();
  if (const auto v = f.find("unplanned_ms")) t.unplanned_ms = v->number(0.0, largest_double);
  if (const auto v = f.find("simulated_ms")) t.simulated_ms = v->number(0.0, largest_double);
  if (const auto v = f.find("bound_ms")) t.bound_ms = v->number(0.0, largest_double);
  if (const auto v = f.find("relaxed")) t.relaxed = v->boolean();
  if (const auto v = f.find("update_ms")) t.update_ms = v->number(0.0, largest_double);
  return t;
}

value tensor_rule_json(const tensor_rule& r) {
  return value::members("pattern", r.pattern, "forms", r.forms, "deny", r.deny);
}

tensor_rule read_tensor_rule(const field& f) {
  tensor_rule r;
  r.pattern = f.at("pattern").text();
  f.for_each("forms", [&](const field& e) { r.forms.push_back(e.text()); });
  if (const auto v = f.find("deny")) r.deny = v->boolean();
  return r;
}

value row_prices_json(const bound_certificate::row_prices& r) {
  value::array steps, prices;
  for (const auto& [step, price] : r.list) {
    steps.push_back(value(step));
    prices.push_back(value(finite(price, "certificate: prices")));
  }
  return value::members("row", r.row, "steps", value(std::move(steps)), "prices", value(std::move(prices)));
}

bound_certificate::row_prices read_row_prices(const field& f) {
  bound_certificate::row_prices r{f.at("row").text(), {}};
  f.at("steps").for_each([&](const field& e) { r.list.emplace_back(e.integer(0, most32), 0.0); });
  std::size_t i = 0;
  f.at("prices").for_each([&](const field& e) {
    if (i < r.list.size()) r.list[i].second = e.number(-largest_double, largest_double);
    ++i;
  });
  if (i != r.list.size())
    f.at("prices").fail(fmt::format("{} prices, one per step", r.list.size()), fmt::to_string(i));
  return r;
}

bound_certificate read_certificate(const field& f) {
  bound_certificate c;
  c.limit_bytes = f.at("limit_bytes").bytes();
  f.at("first_tick").for_each([&](const field& e) {
    c.first_tick.push_back(static_cast<std::int32_t>(e.integer(0, most32)));
  });
  f.for_each("transfer_limits", [&](const field& e) { c.transfer_limits.push_back(e.bytes()); });
  f.at("prices").for_each([&](const field& e) { c.prices.push_back(read_row_prices(e)); });
  return c;
}

// Choices of older files name no recipe: there was one for each target at most.
void find_recipes(plan& p) {
  for (const storage_id s : p.choices.ids()) {
    stash_choice& c = p.choices[s];
    if (c.kind != stash_kind::recompute || c.recipe.valid()) continue;
    const auto found = std::find_if(p.network.recipes.begin(), p.network.recipes.end(),
                                    [s](const recipe& r) { return r.target == s; });
    if (found != p.network.recipes.end()) c.recipe = p.network.recipes.id_of(found);
  }
}

plan read_plan(const field& f) {
  plan p;
  p.chosen_policy = f.at("policy").one_of<policy>();
  f.for_each("values", [&](const field& e) { p.values.push_back(e.one_of<value_format>()); });
  if (const auto v = f.find("budget_bytes")) p.budget_bytes = v->bytes();
  if (const auto v = f.find("threads")) p.threads = static_cast<int>(v->integer(1, 1 << 16));
  if (const auto v = f.find("machine")) p.machine = v->text();
  if (const auto v = f.find("slot_margin")) p.slot_margin = v->number(0.0, largest_double);
  if (const auto v = f.find("overflow_bytes")) p.overflow_bytes = v->bytes();
  if (const auto v = f.find("cut_groups")) p.cut_groups = static_cast<std::int32_t>(v->integer(0, most32));
  if (const auto v = f.find("laid_out")) p.laid_out = v->boolean();
  if (const auto v = f.find("sizes")) p.sizes = read_sizes(*v);
  if (const auto v = f.find("times")) p.times = read_times(*v);
  if (const auto v = f.find("model")) p.model = json_text::read_machine(*v);
  if (const auto v = f.find("swap")) p.swap = v->boolean();
  if (const auto v = f.find("smallest_swap")) p.smallest_swap = v->bytes();
  if (const auto v = f.find("overflow_share")) p.overflow_share = v->number(0.0, largest_double);
  f.for_each("tensors", [&](const field& e) { p.tensors.push_back(read_tensor_rule(e)); });
  if (const auto v = f.find("certificate")) p.certificate = read_certificate(*v);
  byte_total before, after, buffers;
  f.at("choices").for_each([&](const field& e) {
    p.choices.push_back(read_choice(e));
    before.add(p.choices.back().bytes_before, e);
    after.add(p.choices.back().bytes_after, e);
  });
  f.at("alternative").for_each([&](const field& e) { p.alternative.push_back(e.id()); });
  f.at("buffers").for_each([&](const field& e) {
    p.buffers.push_back(read_buffer(e));
    buffers.add(p.buffers.back().bytes, e);
  });
  f.at("steps").for_each([&](const field& e) { p.steps.push_back(read_step(e)); });
  f.for_each("timeline", [&](const field& e) { p.timeline.push_back(read_step_time(e)); });
  f.for_each("planned_op", [&](const field& e) { p.planned_op.push_back(e.id<op_id>()); });
  p.network = json_text::read_graph(f.at("network"));
  find_recipes(p);
  return p;
}

}  // namespace

std::string to_json(const plan& p) {
  return json_text::written([&](json_text::text_writer& out) {
    out.member("format", "stash.plan");
    out.member("version", plan::format_version);
    out.member("policy", name_of(p.chosen_policy));
    if (!p.values.empty()) {
      value::array names;
      for (const value_format v : p.values)
        names.push_back(value(name_of(v)));
      out.member("values", value(std::move(names)));
    }
    out.member("budget_bytes", p.budget_bytes);
    out.member("threads", p.threads);
    out.member("machine", p.machine);
    out.member("slot_margin", finite(p.slot_margin, "slot_margin"));
    out.member("overflow_bytes", p.overflow_bytes);
    if (p.cut_groups != 0) out.member("cut_groups", p.cut_groups);
    if (!p.laid_out) out.member("laid_out", false);
    out.member("sizes", sizes_json(p.sizes));
    if (!p.times.model.empty()) out.member("times", times_json(p.times));
    if (p.model) {
      out.begin_object("model");
      json_text::write_machine(out, *p.model);
      out.end_object();
      out.member("swap", p.swap);
      out.member("smallest_swap", p.smallest_swap);
      out.member("overflow_share", finite(p.overflow_share, "overflow_share"));
    }
    if (p.model || !p.tensors.empty()) out.list("tensors", p.tensors, tensor_rule_json);
    if (!p.certificate.prices.empty()) {
      out.begin_object("certificate");
      out.member("limit_bytes", p.certificate.limit_bytes);
      out.member("first_tick", value(p.certificate.first_tick));
      if (!p.certificate.transfer_limits.empty())
        out.member("transfer_limits", value(p.certificate.transfer_limits));
      out.list("prices", p.certificate.prices, row_prices_json);
      out.end_object();
    }
    out.list("choices", p.choices, choice_json);
    out.member("alternative", value(p.alternative.list()));
    out.list("buffers", p.buffers, buffer_json);
    out.list("steps", p.steps, step_json);
    if (!p.timeline.empty()) out.list("timeline", p.timeline, step_time_json);
    if (!p.planned_op.empty()) out.member("planned_op", value(p.planned_op.list()));
    out.begin_object("network");
    json_text::write_graph(out, p.network);
    out.end_object();
  });
}

plan plan_from_json(std::string_view text) {
  return read_as(text_kind::plan, "plan_from_json", text, [text] {
    const json_text::value document = json_text::parse("plan_from_json", text);
    const field root("plan_from_json", document);
    json_text::check_header(root, "stash.plan", plan::format_version);
    return read_plan(root);
  });
}

}  // namespace stash::planner
