// The reader of execution traces: what it accepts becomes a graph that passes all checks and can be written
// and read again, or a reason why it does not.

#include "../planner/trace_text.hpp"
#include "fuzz/json_edits.hpp"
#include "planner/json.hpp"
#include "planner/trace.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

const std::vector<std::string>& documents() {
  static const std::vector<std::string> texts{
      planner::small_trace(planner::trace_style::flat, "1.0.1"), planner::small_trace(),
      planner::small_trace(planner::trace_style::strides, "1.1.1-chakra.0.0.4")};
  return texts;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string text = edited_text(input, documents());
  planner::graph g;
  try {
    const planner::trace t = planner::read_trace(text);
    g = planner::graph_of(t);
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return;
  }
  const std::string written = to_json(g);
  require(to_json(planner::graph_from_json(written)) == written, "written and read again");
}

std::vector<bytes> seeds() {
  return document_seeds(documents());
}

}  // namespace stash::fuzz
