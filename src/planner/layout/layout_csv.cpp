// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "encoders/message.hpp"
#include "planner/json/text_kind.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

enum column : std::uint8_t { id, lower, upper, last, size, alignment, hint, gaps, offset, columns };

struct column_name {
  std::string_view name;
  column meaning;
};

constexpr std::array column_names{
    column_name{"id", id},
    column_name{"buffer", id},
    column_name{"buffer_id", id},
    column_name{"lower", lower},
    column_name{"start", lower},
    column_name{"begin", lower},
    column_name{"upper", upper},
    column_name{"end", last},
    column_name{"size", size},
    column_name{"hint", hint},
    column_name{"alignment", alignment},
    column_name{"gaps", gaps},
    column_name{"offset", offset},
};

[[noreturn]] void refuse(std::string_view name, std::size_t line, std::string_view what) {
  throw error(errc::bad_format, fmt::format("{}: line {}: {}", name, line, what));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

/// What an error message shows of a field: not all of it, and nothing that a terminal would obey.
std::string shown(std::string_view field) {
  std::string text = shortened(field);
  for (char& c : text)
    c = c >= ' ' && c <= '~' ? c : '?';
  return text;
}

/// Rows of fields; quotes as in RFC 4180, all kinds of line ends, blank lines left out.
class row_reader {
 public:
  row_reader(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }

  /// The line in which the row of the last call began.
  std::size_t line() const noexcept { return row_line_; }

  bool next(std::vector<std::string>& fields) {
    do {
      if (at_ >= text_.size()) return false;
      row_line_ = line_;
      read_row(fields);
    } while (fields.size() == 1 && trimmed(fields[0]).empty());
    return true;
  }

 private:
  void read_row(std::vector<std::string>& fields) {
    fields.clear();
    for (bool more = true; more;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t'))
        ++at_;
      if (at_ < text_.size() && text_[at_] == '"') {
        fields.push_back(quoted());
      } else {
        const std::size_t begin = at_;
        at_ = std::min(text_.find_first_of(",\r\n", at_), text_.size());
        fields.emplace_back(trimmed(text_.substr(begin, at_ - begin)));
      }
      more = at_ < text_.size() && text_[at_] == ',';
      if (more) ++at_;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  std::string quoted() {
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
        ++at_;
      } else if (text_[at_] == '\n') {
        ++line_;
      }
      field += text_[at_];
    }
    if (at_ >= text_.size()) refuse(name_, row_line_, "expected a closing quote, got the end of the text");
    ++at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t'))
      ++at_;
    if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\r' && text_[at_] != '\n') {
      refuse(name_, row_line_, "expected a comma or the end of the line after a closing quote");
    }
    return field;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t row_line_ = 1;
};

/// Takes a whole number from the front of the text.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<layout_gap> parse_gap(std::string_view text) {
  layout_gap gap;
  const auto number = [&](std::int64_t& value) {
    const auto taken = take_number(text);
    if (taken) value = *taken;
    return taken.has_value();
  };
  if (!number(gap.begin) || !take(text, '-') || !number(gap.end)) return std::nullopt;
  if (take(text, '@') && (!number(gap.low) || !take(text, ':') || !number(gap.high))) return std::nullopt;
  if (!text.empty()) return std::nullopt;
  return gap;
}

class table_reader {
 public:
  table_reader(std::string_view text, std::string_view name) : name_(name), rows_(text, name) {}

  layout_table read() {
    if (!rows_.next(fields_)) refuse(name_, 1, "expected a header, got nothing");
    read_header();
    layout_table table;
    bool all_placed = true;
    while (rows_.next(fields_)) {
      if (fields_.size() != width_) {
        refuse(name_, rows_.line(), fmt::format("expected {} fields, got {}", width_, fields_.size()));
      }
      table.ids.push_back(at_[id] < width_ ? fields_[at_[id]] : std::to_string(table.blocks.size()));
      table.blocks.push_back(read_block());
      const std::optional<std::int64_t> placed = optional_number(offset);
      all_placed = all_placed && placed;
      if (all_placed) table.offsets.push_back(*placed);
    }
    if (!all_placed) table.offsets.clear();
    return table;
  }

 private:
  void read_header() {
    width_ = fields_.size();
    at_.fill(width_);
    for (std::size_t i = 0; i < width_; ++i) {
      const auto known = std::find_if(column_names.begin(), column_names.end(),
                                      [&](const column_name& c) { return c.name == trimmed(fields_[i]); });
      if (known == column_names.end()) continue;
      if (at_[known->meaning] != width_) {
        refuse(name_, rows_.line(),
               fmt::format("column '{}': expected no second one of its kind", known->name));
      }
      at_[known->meaning] = i;
    }
    if (at_[lower] == width_) refuse(name_, rows_.line(), "expected a column 'lower', 'start' or 'begin'");
    if ((at_[upper] == width_) == (at_[last] == width_)) {
      refuse(name_, rows_.line(), "expected one column 'upper' (exclusive) or 'end' (inclusive)");
    }
    if (at_[size] == width_) refuse(name_, rows_.line(), "expected a column 'size'");
    for (const column_name& c : column_names) {
      if (at_[c.meaning] < width_ && trimmed(fields_[at_[c.meaning]]) == c.name) titles_[c.meaning] = c.name;
    }
  }

  [[noreturn]] void refuse_field(column c, std::string_view expected) {
    refuse(name_, rows_.line(),
           fmt::format("column '{}': expected {}, got '{}'", titles_[c], expected, shown(fields_[at_[c]])));
  }

  std::int64_t number(column c) {
    std::string_view text = trimmed(fields_[at_[c]]);
    const auto value = take_number(text);
    if (!value || !text.empty()) refuse_field(c, "a whole number of 64 bits");
    return *value;
  }

  /// A number, or nothing where the column is missing or empty or -1.
  std::optional<std::int64_t> optional_number(column c) {
    if (at_[c] == width_ || trimmed(fields_[at_[c]]).empty()) return std::nullopt;
    const std::int64_t value = number(c);
    if (value < -1) refuse_field(c, "-1 (none) or at least 0");
    if (value < 0) return std::nullopt;
    return value;
  }

  layout_block read_block() {
    layout_block b;
    b.begin = number(lower);
    if (at_[upper] < width_) {
      b.end = number(upper);
      if (b.end <= b.begin) refuse_field(upper, fmt::format("more than {}", b.begin));
    } else {
      b.end = number(last);
      if (b.end < b.begin) refuse_field(last, fmt::format("at least {}", b.begin));
      if (b.end == std::numeric_limits<std::int64_t>::max()) refuse_field(last, "a smaller number");
      ++b.end;
    }
    b.size = number(size);
    if (b.size < 0) refuse_field(size, "at least 0");
    if (at_[alignment] < width_ && !trimmed(fields_[at_[alignment]]).empty()) {
      b.alignment = number(alignment);
      if (b.alignment < 1) refuse_field(alignment, "at least 1");
    }
    b.fixed = optional_number(hint);
    if (at_[gaps] < width_) read_gaps(b);
    return b;
  }

  void read_gaps(layout_block& b) {
    std::string_view text = trimmed(fields_[at_[gaps]]);
    while (!text.empty()) {
      const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
      auto gap = parse_gap(text.substr(0, end));
      if (!gap) refuse_field(gaps, "gaps a-b or a-b@low:high, separated by spaces");
      if (at_[last] < width_) {
        // As MiniMalloc has it, gaps end as lifetimes do.
        if (gap->begin < b.begin || gap->end < gap->begin || gap->end >= b.end) {
          refuse_field(gaps,
                       fmt::format("gaps within [{}, {}], with their last moments", b.begin, b.end - 1));
        }
        ++gap->end;
      } else if (gap->begin < b.begin || gap->end <= gap->begin || gap->end > b.end) {
        refuse_field(gaps, fmt::format("gaps within [{}, {})", b.begin, b.end));
      }
      if (gap->low < 0 || gap->high < gap->low || gap->high > b.size) {
        refuse_field(gaps, fmt::format("windows within [0, {})", b.size));
      }
      b.gaps.push_back(*gap);
      text = trimmed(text.substr(end));
    }
    std::vector<layout_gap> sorted = b.gaps;
    std::sort(sorted.begin(), sorted.end(),
              [](const layout_gap& x, const layout_gap& y) { return x.begin < y.begin; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].begin < sorted[i - 1].end) refuse_field(gaps, "disjoint gaps");
    }
  }

  std::string_view name_;
  row_reader rows_;
  std::vector<std::string> fields_;
  std::size_t width_ = 0;
  std::array<std::size_t, columns> at_{};  ///< index of a column, width_ if it is missing
  std::array<std::string_view, columns> titles_{};
};

/// Ids may hold anything; what would be lost without quotes gets them.
std::string quoted(const std::string& field) {
  if (!field.empty() && field.find_first_of(",\"\r\n \t\xEF") == std::string::npos) return field;
  std::string text = "\"";
  for (const char c : field) {
    if (c == '"') text += '"';
    text += c;
  }
  return text + '"';
}

std::string gaps_text(const std::vector<layout_gap>& list) {
  std::string text;
  for (const layout_gap& g : list) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}-{}", g.begin, g.end);
    // An empty window is the same as none, wherever it lies, but the table is to come back as it was.
    if (g.low != 0 || g.high != 0) text += fmt::format("@{}:{}", g.low, g.high);
  }
  return text;
}

}  // namespace

layout_table read_layout_csv(std::string_view text, std::string_view name) {
  try {
    return table_reader(text, name).read();
  } catch (const error&) {
    const text_kind kind = kind_of(text);
    if (kind == text_kind::unknown) throw;
    refuse(name, 1, fmt::format("expected blocks as CSV, got {}", description(kind)));
  }
}

std::string write_layout_csv(const layout_table& table) {
  const auto any = [&](auto says) { return std::any_of(table.blocks.begin(), table.blocks.end(), says); };
  const bool alignments = any([](const layout_block& b) { return b.alignment != 1; });
  const bool hints = any([](const layout_block& b) { return b.fixed.has_value(); });
  const bool holes = any([](const layout_block& b) { return !b.gaps.empty(); });
  const bool placed = !table.blocks.empty() && table.offsets.size() == table.blocks.size();
  std::string text = fmt::format("id,lower,upper,size{}{}{}{}\n", alignments ? ",alignment" : "",
                                 hints ? ",hint" : "", holes ? ",gaps" : "", placed ? ",offset" : "");
  for (std::size_t i = 0; i < table.blocks.size(); ++i) {
    const layout_block& b = table.blocks[i];
    text += fmt::format("{},{},{},{}", quoted(table.ids[i]), b.begin, b.end, b.size);
    if (alignments) text += fmt::format(",{}", b.alignment);
    if (hints) text += fmt::format(",{}", b.fixed.value_or(-1));
    if (holes) text += ',' + gaps_text(b.gaps);
    if (placed) text += fmt::format(",{}", table.offsets[i]);
    text += '\n';
  }
  return text;
}

}  // namespace stash::planner
