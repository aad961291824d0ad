// SPDX-License-Identifier: Apache-2.0
// What a text is, and that every reader says so of what another one reads.

#include "planner/json/text_kind.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/graph/machine.hpp"
#include "planner/json/json.hpp"
#include "planner/layout/layout_csv.hpp"
#include "planner/plan.hpp"
#include "planner/trace/profile_text.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_text.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using namespace std::string_literals;

struct example {
  text_kind kind;
  std::string text;
};

std::string tar_of(std::string name) {
  std::string header = std::move(name);
  header.resize(257, '\0');
  return header + "ustar" + std::string(250, '\0');
}

const std::vector<example>& examples() {
  static const std::vector<example> all = [] {
    const graph g = graph_of(read_trace(small_trace()));
    return std::vector<example>{
        {text_kind::trace, small_trace()},
        {text_kind::trace, small_trace(trace_style::flat, "1.0.1")},
        {text_kind::trace, R"({"schema": "1.0.1", "value": NaN, "nodes": []})"},
        {text_kind::profile, small_profile()},
        {text_kind::profile, R"([{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 9}])"},
        {text_kind::graph, to_json(g)},
        {text_kind::plan, to_json(make_plan(g, {}))},
        {text_kind::machine, to_json(find_machine("rtx"))},
        {text_kind::gz, "\x1F\x8B\x08\0"s},
        {text_kind::tar, tar_of("trace.json")},
        {text_kind::zip, "PK\x03\x04\x14\0"s},
        {text_kind::bzip2, "BZh91AY"},
        {text_kind::xz,
         "\xFD"
         "7zXZ\0"s},
        {text_kind::zstd, "\x28\xB5\x2F\xFD"},
    };
  }();
  return all;
}

TEST(text_kind, is_told_by_what_begins_a_text) {
  for (const example& e : examples()) {
    EXPECT_EQ(kind_of(e.text), e.kind) << e.text.substr(0, 60);
    EXPECT_EQ(is_packed(e.kind), e.kind >= text_kind::gz);
    EXPECT_FALSE(description(e.kind).empty());
  }
  EXPECT_EQ(description(text_kind::unknown), "");
  EXPECT_FALSE(is_packed(text_kind::unknown));
}

TEST(text_kind, damage_further_on_changes_nothing) {
  for (const example& e : examples()) {
    if (is_packed(e.kind) || e.text.size() < 400) continue;
    EXPECT_EQ(kind_of(e.text.substr(0, e.text.size() / 2)), e.kind);
    EXPECT_EQ(kind_of(e.text.substr(0, e.text.size() - 40) + "]]]"), e.kind);
  }
}

TEST(text_kind, other_texts_are_unknown) {
  std::string tar_of_old = tar_of("a");
  tar_of_old.resize(259);
  for (const std::string& text : {""s,
                                  " "s,
                                  "{}"s,
                                  "[]"s,
                                  "7"s,
                                  "null"s,
                                  "{"s,
                                  "[{"s,
                                  "[[1, {}], {\"name\": \"ph\"}]"s,
                                  "{\"nodes\": 3}"s,
                                  "{\"nodes\": {}, \"traceEvents\": 1}"s,
                                  "{\"format\": \"stash.bench\"}"s,
                                  "{\"format\": [\"stash.plan\"]}"s,
                                  "{\"inner\": {\"nodes\": [], \"format\": \"stash.plan\"}}"s,
                                  "id,lower,upper,size\n"s,
                                  "\x1F"s,
                                  "PK"s,
                                  tar_of_old,
                                  std::string(100000, '['),
                                  "{\"a\": " + std::string(100000, '[')})
    EXPECT_EQ(kind_of(text), text_kind::unknown) << text.substr(0, 60);
}

std::string refusal(text_kind expected, const std::string& text) {
  try {
    switch (expected) {
      case text_kind::trace:
        read_trace(text);
        break;
      case text_kind::profile:
        read_kineto(text);
        break;
      case text_kind::graph:
        graph_from_json(text);
        break;
      case text_kind::plan:
        plan_from_json(text);
        break;
      case text_kind::machine:
        machine_from_json(text);
        break;
      default:
        read_layout_csv(text, "blocks.csv");
    }
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::bad_format);
    return e.what();
  }
  return "nothing was refused";
}

TEST(text_kind, every_reader_says_what_it_got_instead) {
  const std::pair<text_kind, std::string> readers[] = {
      {text_kind::trace, "read_trace: text: expected an execution trace of PyTorch (a list 'nodes'), got "},
      {text_kind::profile, "read_kineto: text: expected a profile (Chrome trace), got "},
      {text_kind::graph, "graph_from_json: text: expected a training graph ('stash.graph'), got "},
      {text_kind::plan, "plan_from_json: text: expected a plan ('stash.plan'), got "},
      {text_kind::machine, "machine_from_json: text: expected a machine ('stash.machine'), got "},
      {text_kind::unknown, "blocks.csv: line 1: expected blocks as CSV, got "}};
  for (const auto& [expected, says] : readers) {
    for (const example& e : examples()) {
      if (e.kind == expected) {
        EXPECT_EQ(refusal(expected, e.text), "nothing was refused");
      } else {
        EXPECT_EQ(refusal(expected, e.text), says + std::string(description(e.kind)));
        // Cut off, it is the same file.
        if (!is_packed(e.kind) && e.text.size() > 400) {
          EXPECT_EQ(refusal(expected, e.text.substr(0, e.text.size() / 2)),
                    says + std::string(description(e.kind)));
        }
      }
    }
  }
}

TEST(text_kind, what_is_wrong_with_the_right_kind_is_said_as_before) {
  for (const example& e : examples()) {
    if (is_packed(e.kind) || e.text.size() < 400) continue;
    const std::string got = refusal(e.kind, e.text.substr(0, e.text.size() / 2));
    EXPECT_EQ(got.find(description(e.kind)), std::string::npos) << got;
  }
  EXPECT_EQ(refusal(text_kind::graph, R"({"format": "stash.bench", "version": 1})"),
            "graph_from_json: format: expected 'stash.graph', got 'stash.bench'");
}

}  // namespace
}  // namespace stash::planner
