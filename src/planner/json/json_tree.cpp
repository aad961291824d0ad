// SPDX-License-Identifier: Apache-2.0
#include "planner/json/json_tree.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace stash::planner::json_text {
namespace {

/// The spelling of one string or number. Scalars are destroyed without allocating.
template <class T>
std::string spelling(const T& scalar) {
  return nlohmann::json(scalar).dump();
}

/// Builds the tree from what the parser reports.
class tree_builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add({}); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(std::int64_t{v}); }
  bool number_unsigned(number_unsigned_t v) override { return add(std::uint64_t{v}); }
  bool number_float(number_float_t v, const string_t& /*text*/) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t& /*v*/) override { return false; }  // no text holds one
  bool start_object(std::size_t /*members*/) override { return open(value::members()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*elements*/) override { return open(value::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    key_ = std::move(v);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& e) override {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&e) != nullptr) {
      throw number_out_of_range{token, position};
    }
    throw dynamic_cast<const nlohmann::json::parse_error&>(e);
  }

  value take() { return std::move(root_); }

 private:
  value& append(value v) {
    if (open_.empty()) return root_ = std::move(v);
    value& parent = *open_.back();
    if (parent.is<value::array>()) return parent.get<value::array>().emplace_back(std::move(v));
    return parent.get<value::object>().emplace_back(std::move(key_), std::move(v)).second;
  }
  bool add(value v) {
    append(std::move(v));
    return true;
  }
  bool open(value v) {
    // What is open is the last element of its parent, which grows only after it was closed.
    open_.push_back(&append(std::move(v)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  value root_;
  std::vector<value*> open_;
  std::string key_;
};

}  // namespace

const value* value::find(std::string_view key) const {
  const auto& all = get<object>();
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const member& m) { return m.first == key; });
  return found == all.rend() ? nullptr : &found->second;
}

void value::set(std::string_view key, value v) {
  get<object>().emplace_back(key, std::move(v));
}

bool value::empty() const noexcept {
  if (const auto* list = std::get_if<array>(&data_)) return list->empty();
  if (const auto* members = std::get_if<object>(&data_)) return members->empty();
  const auto* text = std::get_if<std::string>(&data_);
  return text != nullptr && text->empty();
}

std::string value::dump() const {
  std::string text;
  append_to(text);
  return text;
}

void value::append_to(std::string& text) const {
  const char* separator = "";
  if (is<array>()) {
    text += '[';
    for (const value& v : get<array>()) {
      text += std::exchange(separator, ",");
      v.append_to(text);
    }
    text += ']';
  } else if (is<object>()) {
    text += '{';
    for (const auto& [key, v] : get<object>()) {
      text += std::exchange(separator, ",");
      text += spelling(key) + ":";
      v.append_to(text);
    }
    text += '}';
  } else if (is<std::monostate>()) {
    text += "null";
  } else if (is<bool>()) {
    text += get<bool>() ? "true" : "false";
  } else if (is<std::int64_t>()) {
    text += std::to_string(get<std::int64_t>());
  } else if (is<std::uint64_t>()) {
    text += std::to_string(get<std::uint64_t>());
  } else if (is<double>()) {
    text += spelling(get<double>());
  } else {
    text += spelling(get<std::string>());
  }
}

value parse_tree(std::string_view text) {
  tree_builder builder;
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace stash::planner::json_text
