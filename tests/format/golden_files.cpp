// SPDX-License-Identifier: Apache-2.0
#include "format/golden_files.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace stash::golden {
namespace {

[[noreturn]] void fail(const std::string& what, std::string_view text) {
  throw std::runtime_error(what + ": '" + std::string(text) + "'");
}

std::uint32_t number(std::string_view digits, int base) {
  std::size_t used = 0;
  unsigned long value = 0;
  try {
    value = std::stoul(std::string(digits), &used, base);
  } catch (const std::exception&) {
    fail("not a number", digits);
  }
  if (used != digits.size() || value > 0xffffffff) fail("not a number of 32 bits", digits);
  return static_cast<std::uint32_t>(value);
}

template <class Word>
std::string listed(const std::vector<Word>& all, int digits) {
  std::string text;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t same = 1;
    while (i + same < all.size() && all[i + same] == all[i])
      ++same;
    const std::size_t together = same > 2 ? same : 1;
    char word[32];
    std::snprintf(word, sizeof word, together > 1 ? "%0*x*%zu" : "%0*x", digits,
                  static_cast<unsigned>(all[i]), together);
    if (!text.empty()) text += ' ';
    text += word;
    i += together;
  }
  return text;
}

}  // namespace

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") all.push_back(entry.path());
  }
  if (all.empty()) fail("no files", folder.string());
  std::sort(all.begin(), all.end());
  return all;
}

json read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) fail("cannot be read", path.string());
  try {
    return json::parse(file);
  } catch (const json::exception& e) {
    fail(e.what(), path.string());
  }
}

std::vector<std::uint32_t> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::uint32_t> all;
  for (std::string word; in >> word;) {
    const std::size_t star = word.find('*');
    const std::size_t count = star == std::string::npos ? 1 : number(word.substr(star + 1), 10);
    all.insert(all.end(), count, number(word.substr(0, star), 16));
  }
  return all;
}

std::vector<std::uint8_t> bytes(std::string_view text) {
  std::vector<std::uint8_t> all;
  for (const std::uint32_t word : words(text)) {
    if (word > 0xff) fail("more than a byte", text);
    all.push_back(static_cast<std::uint8_t>(word));
  }
  return all;
}

std::string text_of_words(const std::vector<std::uint32_t>& all, dtype type) {
  return listed(all, static_cast<int>(2 * size_of(type)));
}

std::string text_of_bytes(const std::vector<std::uint8_t>& all) {
  return listed(all, 2);
}

dtype type_of(const json& test_case) {
  constexpr std::pair<std::string_view, dtype> types[] = {
      {"f32", dtype::f32}, {"f16", dtype::f16}, {"bf16", dtype::bf16}, {"u8", dtype::u8}};
  const auto name = test_case.at("type").get<std::string>();
  for (const auto& [known, type] : types) {
    if (known == name) return type;
  }
  fail("unknown type", name);
}

encoding encoding_of(const std::string& name, const json& test_case) {
  constexpr std::pair<std::string_view, encoding_kind> kinds[] = {
      {"raw", encoding_kind::raw},
      {"shape_only", encoding_kind::shape_only},
      {"sign_mask", encoding_kind::sign_mask},
      {"range_mask", encoding_kind::range_mask},
      {"bitmap", encoding_kind::bitmap},
      {"csr", encoding_kind::csr},
      {"window_index", encoding_kind::window_index},
      {"relu_pool", encoding_kind::relu_pool}};
  encoding e;
  bool known = false;
  for (const auto& [kind_name, kind] : kinds) {
    if (name == kind_name) {
      e.kind = kind;
      known = true;
    }
  }
  for (const value_format_info& row : value_formats) {
    for (const auto& [prefix, kind] : {std::pair<std::string_view, encoding_kind>{"", encoding_kind::cast},
                                       {"bitmap_", encoding_kind::bitmap},
                                       {"csr_", encoding_kind::csr}}) {
      if (name != std::string(prefix) + std::string(row.name)) continue;
      e.kind = kind;
      e.values = row.format;
      known = true;
    }
  }
  if (!known) fail("unknown encoding", name);
  if (test_case.value("underflow", "to_zero") == "keep_nonzero") e.underflow = underflow_rule::keep_nonzero;
  if (test_case.value("rule", "tensorflow") == "pytorch") e.rule = framework_rule::pytorch;
  e.lower = test_case.value("lower", e.lower);
  e.upper = test_case.value("upper", e.upper);
  return e;
}

reference::tensor tensor_of(const json& test_case) {
  return {type_of(test_case), words(test_case.at("values").get<std::string>())};
}

std::vector<std::uint8_t> bytes_of(const json& test_case) {
  if (test_case.contains("bytes")) return bytes(test_case.at("bytes").get<std::string>());
  std::vector<std::uint8_t> all;
  for (const json& part : test_case.at("parts")) {
    const std::vector<std::uint8_t> some = bytes(part.at("bytes").get<std::string>());
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace stash::golden
