// SPDX-License-Identifier: Apache-2.0
#include "executor/swap_of_plan.hpp"

#include <fmt/format.h>

#include "planner/graph/needs.hpp"

namespace stash::executor {

using planner::buffer_form;
using planner::buffer_id;
using planner::step_kind;
using runtime::swap_lane;
using runtime::swap_side;
using runtime::swap_task;

namespace {

swap_task task_of(const planner::plan& p, const planner::step& st, std::span<const encode_report> reports) {
  swap_task t;
  const auto name = [&] { return p.network.at(st.storage).name; };
  const auto touch = [&](const std::vector<buffer_id>& buffers, bool writes) {
    for (const buffer_id b : buffers) {
      if (b.valid()) t.accesses.push_back({b.number(), writes});
    }
  };
  switch (st.kind) {
    case step_kind::run:
      t.name = p.network.op_at(st.op).name;
      break;
    case step_kind::encode:
    case step_kind::decode:
    case step_kind::recompute:
      t.name = fmt::format("{} of {}", to_string(st.kind), name());
      break;
    case step_kind::copy_out:
    case step_kind::copy_in: {
      const bool out = st.kind == step_kind::copy_out;
      t.lane = out ? swap_lane::out : swap_lane::in;
      t.name = fmt::format("{} {} the host", name(), out ? "to" : "from");
      const planner::stash_choice& c = p.choices[st.storage];
      const auto bytes = [&](buffer_id b) { return p.buffers[b].bytes; };
      t.bytes = std::min(bytes(st.inputs[0]), bytes(st.outputs[0]));
      if (planner::kept_sparsely(c)) t.used = &reports[planner::position_of(st.storage)].slot_bytes;
      break;
    }
    case step_kind::wait_out:
    case step_kind::wait_in:
      t.name = fmt::format("{} of {}", to_string(st.kind), name());
      return t;
  }
  touch(st.inputs, false);
  touch(st.stash, false);
  touch(st.outputs, true);
  touch(st.optional_outputs, true);
  return t;
}

}  // namespace

runtime::swap_program swap_of_plan(const planner::plan& p, std::span<const encode_report> reports) {
  runtime::swap_program program;
  for (const planner::buffer& b : p.buffers) {
    program.blocks.push_back(
        {b.form == buffer_form::host ? swap_side::host : swap_side::device, b.offset, b.bytes});
  }
  for (const planner::step& st : p.steps)
    program.tasks.push_back(task_of(p, st, reports));
  program.edges = order_edges(program);
  return program;
}

}  // namespace stash::executor
