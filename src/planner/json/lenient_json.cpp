// SPDX-License-Identifier: Apache-2.0
#include "planner/json/lenient_json.hpp"

#include <charconv>

#include <fmt/format.h>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr int deepest = 64;

bool ends_word(char c) {
  return c == ',' || c == ']' || c == '}' || c == '[' || c == '{' || c == '"' || c == ':' || c == ' ' ||
         c == '\n' || c == '\t' || c == '\r';
}

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Names and signatures are ASCII; what is not becomes a question mark, so that every text is valid UTF-8.
void append_plain(std::string& text, char c) {
  text.push_back(c >= ' ' && c < 127 ? c : '?');
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void lenient_json::fail(std::string_view expected) {
  skip_blanks();
  const std::string got =
      at_ >= text_.size() ? "the end" : fmt::format("byte {:#04x}", static_cast<unsigned char>(text_[at_]));
  throw error(errc::bad_format,
              fmt::format("{}: byte {}: expected {}, got {}", function_, at_, expected, got));
}

void lenient_json::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != ',' && c != '\t' && c != '\r') return;
    ++at_;
  }
}

lenient_json::kind lenient_json::peek() {
  skip_blanks();
  if (at_ >= text_.size()) return kind::end;
  const char c = text_[at_];
  if (c == '{') return kind::object;
  if (c == '[') return kind::array;
  if (c == '"') return kind::string;
  if (c == '}' || c == ']') return kind::close;
  return c == '-' || (c >= '0' && c <= '9') ? kind::number : kind::word;
}

void lenient_json::open(char bracket, std::string_view expected) {
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != bracket) fail(expected);
  if (++depth_ > deepest) fail("nesting of at most 64");
  ++at_;
}

bool lenient_json::closed(char bracket) {
  skip_blanks();
  if (at_ >= text_.size()) fail(bracket == '}' ? "}" : "]");
  if (text_[at_] != bracket) return false;
  ++at_;
  return true;
}

void lenient_json::colon() {
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != ':') fail("a colon");
  ++at_;
}

std::string_view lenient_json::raw_string(std::string_view expected) {
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != '"') fail(expected);
  const std::size_t begin = ++at_;
  for (;;) {
    at_ = text_.find_first_of("\"\\", at_);
    if (at_ == std::string_view::npos || at_ + 1 == text_.size()) {
      if (at_ != std::string_view::npos && text_[at_] == '"') break;
      at_ = text_.size();
      fail("the end of a string");
    }
    if (text_[at_] == '"') break;
    at_ += 2;
  }
  const std::string_view content = text_.substr(begin, at_ - begin);
  ++at_;
  return content;
}

std::string lenient_json::string() {
  const std::string_view raw = raw_string();
  std::string text;
  text.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      append_plain(text, raw[i]);
      continue;
    }
    const char c = raw[++i];  // raw_string takes what is escaped along
    if (c == 'u' && i + 4 < raw.size()) {
      int code = 0;
      for (std::size_t k = 1; k <= 4; ++k)
        code = code * 16 + hexadecimal(raw[i + k]);
      i += 4;
      append_plain(text, code > 0 && code < 127 ? static_cast<char>(code) : '?');
    } else {
      append_plain(text, c == 'n' || c == 't' || c == 'r' ? ' ' : c);
    }
  }
  return text;
}

std::string_view lenient_json::word() {
  skip_blanks();
  const std::size_t begin = at_;
  while (at_ < text_.size() && !ends_word(text_[at_]))
    ++at_;
  if (at_ == begin) fail("a value");
  return text_.substr(begin, at_ - begin);
}

std::optional<std::int64_t> lenient_json::integer() {
  switch (peek()) {
    case kind::string:
      return parsed<std::int64_t>(raw_string());
    case kind::object:
    case kind::array:
      skip();
      return std::nullopt;
    default:
      return parsed<std::int64_t>(word());
  }
}

std::optional<double> lenient_json::number() {
  switch (peek()) {
    case kind::string:
      return parsed<double>(raw_string());
    case kind::object:
    case kind::array:
      skip();
      return std::nullopt;
    default:
      return parsed<double>(word());
  }
}

std::string_view lenient_json::skip() {
  const kind next = peek();
  const std::size_t begin = at_;
  switch (next) {
    case kind::object:
      object([this](std::string_view) { skip(); });
      break;
    case kind::array:
      array([this] { skip(); });
      break;
    case kind::string:
      raw_string();
      break;
    default:
      word();
  }
  return text_from(begin);
}

void lenient_json::finish() {
  if (peek() != kind::end) fail("the end");
}

}  // namespace stash::planner
