// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "planner/graph/machine.hpp"
#include "planner/json/json_field.hpp"
#include "planner/json/json_writer.hpp"
#include "planner/json/text_kind.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr double most = std::numeric_limits<double>::max();

/// Calls visit(name, member, least, most) for every number. One list for reader and writer.
template <class Visit>
void for_each_rate(Visit visit) {
  using m = machine;
  visit("flops_per_second", &m::flops_per_second, 1.0, most);
  visit("memory_bytes_per_second", &m::memory_bytes_per_second, 1.0, most);
  visit("op_latency_seconds", &m::op_latency_seconds, 0.0, 1e3);
  visit("out_bytes_per_second", &m::out_bytes_per_second, 0.0, most);
  visit("in_bytes_per_second", &m::in_bytes_per_second, 0.0, most);
  visit("link_latency_seconds", &m::link_latency_seconds, 0.0, 1e3);
  visit("contention", &m::contention, 0.5, 1.0);
  visit("mask_share", &m::mask_share, 1e-6, 1e6);
  visit("sparse_share", &m::sparse_share, 1e-6, 1e6);
  visit("cast_share", &m::cast_share, 1e-6, 1e6);
  visit("elementwise_share", &m::elementwise_share, 1e-6, 1e6);
  visit("produced_factor", &m::produced_factor, 0.0, 1e6);
  visit("compute_factor", &m::compute_factor, 0.0, 1e6);
  visit("codec_factor", &m::codec_factor, 0.0, 1e6);
}

}  // namespace

machine json_text::read_machine(const field& root) {
  machine m;
  m.name = root.at("name").text();
  if (const auto v = root.find("description")) m.description = v->text();
  if (const auto v = root.find("memory_bytes")) m.memory_bytes = v->bytes();
  if (const auto v = root.find("host_bytes")) m.host_bytes = v->bytes();
  if (const auto v = root.find("pinned")) m.pinned = v->boolean();
  for_each_rate([&](const char* name, double machine::*member, double least, double largest) {
    // A pinned machine counts no floating-point operations.
    const bool unused = m.pinned && member == &machine::flops_per_second;
    if (const auto v = root.find(name)) m.*member = v->number(unused ? 0.0 : least, largest);
  });
  return m;
}

void json_text::write_machine(text_writer& out, const machine& m) {
  out.member("name", m.name);
  out.member("description", m.description);
  out.member("memory_bytes", m.memory_bytes);
  out.member("host_bytes", m.host_bytes);
  for_each_rate([&](const char* name, double machine::*member, double, double) {
    out.member(name, finite(m.*member, name));
  });
  if (m.pinned) out.member("pinned", true);
}

machine machine_from_json(std::string_view text) {
  return read_as(text_kind::machine, "machine_from_json", text, [text] {
    const json_text::value document = json_text::parse("machine_from_json", text);
    const json_text::field root("machine_from_json", document);
    json_text::check_header(root, "stash.machine", 1);
    return json_text::read_machine(root);
  });
}

std::string to_json(const machine& m) {
  return json_text::written([&](json_text::text_writer& out) {
    out.member("format", "stash.machine");
    out.member("version", 1);
    json_text::write_machine(out, m);
  });
}

}  // namespace stash::planner
