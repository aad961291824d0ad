// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// JSON as profilers write it, read in one pass without a tree: commas may be missing or too many, numbers
/// may be words like NaN. Positions are bytes from the start of the text.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stash::planner {

class lenient_json {
 public:
  /// Both texts must outlive this. `function` begins every error message.
  lenient_json(std::string_view function, std::string_view text) : function_(function), text_(text) {}

  enum class kind : std::uint8_t { object, array, string, number, word, close, end };

  /// What comes next, after blanks and commas.
  kind peek();

  /// Calls visit(key) for every member of an object; it must take the value. Keys keep their escapes.
  template <class Visit>
  void object(Visit visit) {
    open('{', "an object");
    while (!closed('}')) {
      const std::string_view key = raw_string("a key in quotes");
      colon();
      visit(key);
    }
    --depth_;
  }

  /// Calls visit() for every element of an array; it must take it.
  template <class Visit>
  void array(Visit visit) {
    open('[', "an array");
    while (!closed(']'))
      visit();
    --depth_;
  }

  /// A string with its escapes; and one without them.
  std::string_view raw_string(std::string_view expected = "a string");
  std::string string();
  /// A whole number; also one in quotes. Takes the value in any case; none if it is something else.
  std::optional<std::int64_t> integer();
  /// A number; none, taken, if it is something else.
  std::optional<double> number();
  /// Takes a value of any kind and returns its text.
  std::string_view skip();
  /// Demands that only blanks and commas follow.
  void finish();

  std::size_t position() const noexcept { return at_; }
  /// The text from `begin` to the current position.
  std::string_view text_from(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

  /// Throws error(bad_format): "function: byte 17: expected ..., got ...".
  [[noreturn]] void fail(std::string_view expected);

 private:
  void open(char bracket, std::string_view expected);
  bool closed(char bracket);
  void colon();
  void skip_blanks();
  std::string_view word();

  std::string_view function_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace stash::planner
