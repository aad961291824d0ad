// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/text.hpp"

#include <algorithm>

#include "ptx/machine/machine.hpp"

namespace stash::ptx {
namespace {

constexpr std::string_view blanks = " \t\r\n";

/// Where the text goes on after blanks and comments.
std::size_t past_blanks(std::string_view text, std::size_t at, std::uint32_t& line) {
  while (at < text.size()) {
    if (text[at] == '\n') ++line;
    if (blanks.find(text[at]) != std::string_view::npos) {
      ++at;
    } else if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else {
      break;
    }
  }
  return at;
}

std::uint32_t lines_in(std::string_view text) {
  return static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The position of the brace that closes the one at `open`.
std::size_t closing(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at;
  }
  throw violation("PTX: a body that does not end");
}

statement instruction_of(std::string_view text, std::uint32_t line) {
  statement s;
  s.line = line;
  if (text.front() == '@') {
    const std::size_t end = text.find_first_of(blanks);
    if (end == std::string_view::npos) throw violation("PTX line " + std::to_string(line) + ": no opcode");
    s.guard = text.substr(1, end - 1);
    s.guard_negated = s.guard.starts_with('!');
    if (s.guard_negated) s.guard.remove_prefix(1);
    text = trimmed(text.substr(end));
  }
  const std::size_t end = std::min(text.find_first_of(blanks), text.size());
  s.name = text.substr(0, end);
  if (s.name.starts_with('.')) s.what = statement::sort::directive;
  const std::string_view rest = trimmed(text.substr(end));
  if (!rest.empty()) s.operands = split(rest, ',');
  return s;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view list, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    if (at == list.size() || (list[at] == separator && depth == 0)) {
      parts.push_back(trimmed(list.substr(begin, at - begin)));
      begin = at + 1;
    } else if (list[at] == '{' || list[at] == '[') {
      ++depth;
    } else if (list[at] == '}' || list[at] == ']') {
      --depth;
    }
  }
  return parts;
}

std::vector<entry_text> entries_of(std::string_view text, std::vector<std::string_view>& outside) {
  constexpr std::string_view word = ".entry ";
  std::vector<entry_text> entries;
  std::size_t begin = 0;
  std::uint32_t line = 1;
  for (;;) {
    const std::size_t at = text.find(word, begin);
    if (at == std::string_view::npos) break;
    const std::size_t open = text.find('{', at);
    if (open == std::string_view::npos) throw violation("PTX: an entry without a body");
    const std::size_t close = closing(text, open);
    outside.push_back(text.substr(begin, at - begin));
    entry_text entry;
    const std::string_view header = text.substr(at + word.size(), open - at - word.size());
    const std::size_t list = header.find('(');
    const std::size_t closing = list == std::string_view::npos ? list : header.find(')', list);
    if (closing == std::string_view::npos) {
      const std::size_t end = std::min(header.find_first_of(blanks), header.size());
      entry.name = header.substr(0, end);
      entry.directives = header.substr(end);
    } else {
      entry.name = trimmed(header.substr(0, list));
      entry.parameters = trimmed(header.substr(list + 1, closing - list - 1));
      entry.directives = header.substr(closing + 1);
    }
    line += lines_in(text.substr(begin, open - begin));
    entry.line = line;
    entry.body = text.substr(open + 1, close - open - 1);
    line += lines_in(entry.body);
    entries.push_back(entry);
    begin = close + 1;
  }
  outside.push_back(text.substr(begin));
  return entries;
}

std::vector<statement> statements_of(std::string_view body, std::uint32_t line) {
  std::vector<statement> found;
  for (std::size_t at = past_blanks(body, 0, line); at < body.size(); at = past_blanks(body, at, line)) {
    if (body[at] == '{' || body[at] == '}') {
      statement s;
      s.what = body[at] == '{' ? statement::sort::open : statement::sort::close;
      s.line = line;
      found.push_back(s);
      ++at;
      continue;
    }
    // A label ends with a colon in front of any blank.
    const std::size_t word = body.find_first_of(" \t\r\n:;", at);
    if (word != std::string_view::npos && body[word] == ':' && body.substr(word, 2) != "::") {
      statement s;
      s.what = statement::sort::label;
      s.line = line;
      s.name = body.substr(at, word - at);
      found.push_back(s);
      at = word + 1;
      continue;
    }
    const std::size_t end = body.find(';', at);
    if (end == std::string_view::npos)
      throw violation("PTX line " + std::to_string(line) + ": a statement that does not end");
    const std::string_view text = body.substr(at, end - at);
    if (text.starts_with(".loc") || text.starts_with(".file")) {
      at = std::min(body.find('\n', at), body.size());
      continue;
    }
    found.push_back(instruction_of(trimmed(text), line));
    line += lines_in(text);
    at = end + 1;
  }
  return found;
}

}  // namespace stash::ptx
