// SPDX-License-Identifier: Apache-2.0
#include "report/pickle.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/utf8.hpp"

namespace stash::tools {
namespace {

using json = nlohmann::ordered_json;

// Readers take the parts of a list or dictionary from a stack, some of them as arguments of one call: as many
// as Python itself puts there.
constexpr std::size_t batch = 1000;

class pickler {
 public:
  std::string run(const json& document) {
    text_ = "\x80\x02";
    put(document);
    text_ += '.';
    return std::move(text_);
  }

 private:
  void put(const json& j) {
    switch (j.type()) {
      case json::value_t::object:
        return put_parts(j, '}', 'u');
      case json::value_t::array:
        return put_parts(j, ']', 'e');
      case json::value_t::string:
        return put_string(j.get_ref<const std::string&>());
      case json::value_t::boolean:
        text_ += j.get<bool>() ? '\x88' : '\x89';
        return;
      case json::value_t::number_integer:
      case json::value_t::number_unsigned:
        return put_integer(j.get<std::int64_t>());
      case json::value_t::number_float:
        return put_double(j.get<double>());
      default:
        text_ += 'N';
    }
  }

  void put_parts(const json& j, char empty, char add) {
    text_ += empty;
    std::size_t count = 0;
    for (auto part = j.begin(); part != j.end(); ++part, ++count) {
      if (count % batch == 0) text_ += '(';
      if (j.is_object()) put_string(part.key());
      put(*part);
      if (count % batch == batch - 1 || count + 1 == j.size()) text_ += add;
    }
  }

  void put_string(const std::string& s) {
    const std::string utf8 = valid_utf8(s);
    text_ += 'X';
    little_endian(utf8.size(), 4);
    text_ += utf8;
  }

  void put_integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0 && value <= 0xff) {
      text_ += 'K';
      little_endian(bits, 1);
    } else if (value >= std::numeric_limits<std::int32_t>::min() &&
               value <= std::numeric_limits<std::int32_t>::max()) {
      text_ += 'J';
      little_endian(bits, 4);
    } else {
      text_ += "\x8a\x08";
      little_endian(bits, 8);
    }
  }

  void put_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    text_ += 'G';
    for (int shift = 56; shift >= 0; shift -= 8)
      text_ += static_cast<char>(bits >> shift & 0xff);
  }

  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      text_ += static_cast<char>(value >> 8 * i & 0xff);
  }

  std::string text_;
};

}  // namespace

std::string to_pickle(const json& document) {
  return pickler().run(document);
}

}  // namespace stash::tools
