// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/lanewise.hpp"
#include "ptx/machine/numbers.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;

template <class T>
form of_integers(std::string_view op) {
  if (op == "eq") return predicate_form_of<[](T a, T b) { return a == b; }>();
  if (op == "ne") return predicate_form_of<[](T a, T b) { return a != b; }>();
  if (op == "lt" || op == "lo") return predicate_form_of<[](T a, T b) { return a < b; }>();
  if (op == "le" || op == "ls") return predicate_form_of<[](T a, T b) { return a <= b; }>();
  if (op == "gt" || op == "hi") return predicate_form_of<[](T a, T b) { return b < a; }>();
  if (op == "ge" || op == "hs") return predicate_form_of<[](T a, T b) { return b <= a; }>();
  return {};
}

bool unordered(double a, double b) {
  return a != a || b != b;
}

using test = bool (*)(double, double);
/// Comparisons of floating point: those whose names end with u also hold where one side is NaN.
struct named_test {
  std::string_view name;
  test holds;
};
constexpr named_test tests[] = {
    {"eq", [](double a, double b) { return a == b; }},
    {"ne", [](double a, double b) { return a != b && !unordered(a, b); }},
    {"lt", [](double a, double b) { return a < b; }},
    {"le", [](double a, double b) { return a <= b; }},
    {"gt", [](double a, double b) { return b < a; }},
    {"ge", [](double a, double b) { return a >= b; }},
    {"equ", [](double a, double b) { return a == b || unordered(a, b); }},
    {"neu", [](double a, double b) { return a != b; }},
    {"ltu", [](double a, double b) { return !(a >= b); }},
    {"leu", [](double a, double b) { return !(a > b); }},
    {"gtu", [](double a, double b) { return !(a <= b); }},
    {"geu", [](double a, double b) { return !(a < b); }},
    {"num", [](double a, double b) { return !unordered(a, b); }},
    {"nan", [](double a, double b) { return unordered(a, b); }},
};

/// Which of those an instruction asks for is its immediate.
template <class Number>
void run_float_test(warp& w, const instruction& i, std::uint32_t lanes, const Number& number,
                    unsigned result) {
  const std::byte* a = w.at<std::byte>(i.operands[i.count - 2U]);
  const std::byte* b = w.at<std::byte>(i.operands[i.count - 1U]);
  const test holds = tests[i.immediate].holds;
  std::uint32_t bits = 0;
  each_lane(lanes, [&](unsigned lane) {
    bits |= (holds(number(value_at<word>(a, lane)), number(value_at<word>(b, lane))) ? 1U : 0U) << lane;
  });
  std::uint32_t& to = *w.at<std::uint32_t>(i.operands[result]);
  to = (to & ~lanes) | bits;
}
void test_floats(warp& w, const instruction& i, std::uint32_t lanes) {
  run_float_test(
      w, i, lanes, [](word bits) { return double{as_float(bits)}; }, 0);
}
void test_halves(warp& w, const instruction& i, std::uint32_t lanes) {
  run_float_test(
      w, i, lanes, [](word bits) { return half_number(bits); }, 0);
  run_float_test(
      w, i, lanes, [](word bits) { return half_number(bits >> 16); }, 1);
}
void set_floats(warp& w, const instruction& i, std::uint32_t lanes) {
  std::byte* to = w.at<std::byte>(i.operands[0]);
  const std::byte* a = w.at<std::byte>(i.operands[1]);
  const std::byte* b = w.at<std::byte>(i.operands[2]);
  const test holds = tests[i.immediate].holds;
  each_lane(lanes, [&](unsigned lane) {
    put_at(to, lane,
           holds(as_float(value_at<word>(a, lane)), as_float(value_at<word>(b, lane))) ? all_lanes : 0U);
  });
}
void set_halves(warp& w, const instruction& i, std::uint32_t lanes) {
  std::byte* to = w.at<std::byte>(i.operands[0]);
  const std::byte* a = w.at<std::byte>(i.operands[1]);
  const std::byte* b = w.at<std::byte>(i.operands[2]);
  const test holds = tests[i.immediate].holds;
  each_lane(lanes, [&](unsigned lane) {
    const auto x = value_at<word>(a, lane), y = value_at<word>(b, lane);
    const word low = holds(half_number(x), half_number(y)) ? 0xffffU : 0;
    const word high = holds(half_number(x >> 16), half_number(y >> 16)) ? 0xffff0000U : 0;
    put_at(to, lane, low | high);
  });
}

template <class T>
void run_selection(warp& w, const instruction& i, std::uint32_t lanes) {
  std::byte* to = w.at<std::byte>(i.operands[0]);
  const std::byte* a = w.at<std::byte>(i.operands[1]);
  const std::byte* b = w.at<std::byte>(i.operands[2]);
  const std::uint32_t first = *w.at<std::uint32_t>(i.operands[3]);
  each_lane(lanes,
            [&](unsigned lane) { put_at(to, lane, value_at<T>((first >> lane & 1) != 0 ? a : b, lane)); });
}
template <class T>
form selection() {
  return {&run_selection<T>, {sizeof(T), sizeof(T), sizeof(T), 0}};
}

form with_test(form f, std::string_view name) {
  for (std::size_t t = 0; t < std::size(tests); ++t) {
    if (tests[t].name != name) continue;
    f.immediate = static_cast<std::int64_t>(t);
    return f;
  }
  return {};
}

}  // namespace

form comparison_form(const opcode_words& opcode) {
  const std::string_view op = opcode[0], type = opcode.back();
  if (op == "selp" && opcode.size() == 2) {
    if (type.ends_with("16")) return selection<std::uint16_t>();
    if (type.ends_with("32")) return selection<std::uint32_t>();
    if (type.ends_with("64")) return selection<std::uint64_t>();
  }
  if (op == "setp" && opcode.size() == 3) {
    if (type == "u16" || type == "b16") return of_integers<std::uint16_t>(opcode[1]);
    if (type == "s16") return of_integers<std::int16_t>(opcode[1]);
    if (type == "u32" || type == "b32") return of_integers<std::uint32_t>(opcode[1]);
    if (type == "s32") return of_integers<std::int32_t>(opcode[1]);
    if (type == "u64" || type == "b64") return of_integers<std::uint64_t>(opcode[1]);
    if (type == "s64") return of_integers<std::int64_t>(opcode[1]);
    if (type == "f32") return with_test({&test_floats, {0, 4, 4}}, opcode[1]);
    if (type == "f16x2") return with_test({&test_halves, {0, 0, 4, 4}}, opcode[1]);
  }
  if (op == "set" && opcode.size() == 4 && opcode[2] == "u32") {
    if (type == "f32") return with_test({&set_floats, {4, 4, 4}}, opcode[1]);
    if (type == "f16x2") return with_test({&set_halves, {4, 4, 4}}, opcode[1]);
  }
  return {};
}

}  // namespace stash::ptx
