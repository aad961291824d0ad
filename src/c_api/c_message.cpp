// SPDX-License-Identifier: Apache-2.0
#include "c_api/c_message.hpp"

#include <algorithm>
#include <cstring>

namespace stash::c_api {
namespace {

/// Text in memory of fixed size.
class cut_text {
 public:
  explicit cut_text(std::span<char> buffer) : buffer_(buffer.first(buffer.size() - 1)), end_(buffer.data()) {}
  cut_text& operator<<(std::string_view part) noexcept {
    const std::size_t length =
        std::min(part.size(), buffer_.size() - static_cast<std::size_t>(end_ - buffer_.data()));
    std::memcpy(end_, part.data(), length);
    end_ += length;
    *end_ = '\0';
    return *this;
  }

 private:
  std::span<char> buffer_;
  char* end_;
};

bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Takes the characters in front that `takes` agrees to.
template <class Takes>
std::string_view take(std::string_view& text, const Takes& takes) noexcept {
  const auto end = std::find_if_not(text.begin(), text.end(), takes);
  const auto front = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(front.size());
  return front;
}

/// Takes "name: " of a C++ function, if that is what the text begins with.
std::string_view take_function(std::string_view& text) noexcept {
  std::string_view rest = text;
  const std::string_view name = take(rest, [](char c) { return is_word(c) || c == ':' || c == '~'; });
  // The colon after the name was taken with it.
  if (name.size() < 2 || !name.ends_with(':') || name.ends_with("::") || !rest.starts_with(' ')) return {};
  text = rest.substr(1);
  return name.substr(0, name.size() - 1);
}

/// Takes "items[3]: " or "items[3]." of a batch.
std::string_view take_item(std::string_view& text) noexcept {
  if (!text.starts_with("items[")) return {};
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return {};
  std::string_view rest = text.substr(end + 1);
  const std::string_view item = text.substr(0, end + 1);
  if (rest.starts_with(": ") && !rest.starts_with(": expected")) {
    text = rest.substr(2);
  } else if (rest.starts_with('.')) {
    text = rest.substr(1);
  } else {
    return {};
  }
  return item;
}

/// An argument's name, and what stands before it.
void write_argument(cut_text& to, std::string_view& text, const argument_names& names) noexcept {
  // The context is that of all items.
  const std::string_view item = take_item(text);
  if (!item.empty() && !text.starts_with("context: ")) to << item << ".";
  std::string_view rest = text;
  const std::string_view name = take(rest, is_word);
  const auto known = std::find_if(names.known.begin(), names.known.end(),
                                  [name](const renamed& r) { return r.from == name; });
  if (known == names.known.end()) return;
  to << (known->to.empty() ? name : known->to);
  text = rest;
}

/// A tensor's name stands where an argument's should: "name: expected ...".
bool write_owned(cut_text& to, std::string_view& text, const argument_names& names) noexcept {
  const std::string_view name = text.substr(0, text.find(": "));
  const std::string_view word = name.substr(0, name.find('.'));
  if (names.owner.empty() || name.size() == text.size() || name.starts_with("STASH_")) return false;
  if (std::any_of(names.known.begin(), names.known.end(),
                  [word](const renamed& r) { return r.from == word; }))
    return false;
  to << names.owner << " '" << name << "'";
  text.remove_prefix(name.size());
  return true;
}

}  // namespace

void write_c_message(std::span<char> buffer, std::string_view function, std::string_view message,
                     const argument_names& names) noexcept {
  cut_text to(buffer);
  to << function << ": ";
  const std::string_view inner = take_function(message);
  if (inner == function) {
    to << message;
    return;
  }
  constexpr std::string_view no_memory = "bytes: expected memory for ";
  if (inner == "memory_resource::allocate" && message.starts_with(no_memory)) {
    to << "memory";
    message.remove_prefix(no_memory.find(':'));
  } else if (!write_owned(to, message, names)) {
    write_argument(to, message, names);
  }
  // What overlaps an argument is an argument, too.
  constexpr std::string_view separate = "memory apart from ";
  if (const std::size_t at = message.find(separate); at != std::string_view::npos && !names.known.empty()) {
    to << message.substr(0, at + separate.size());
    message.remove_prefix(at + separate.size());
    write_argument(to, message, names);
  }
  to << message;
}

}  // namespace stash::c_api
