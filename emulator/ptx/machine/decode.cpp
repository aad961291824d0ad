// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/decode.hpp"

#include <charconv>
#include <map>
#include <optional>

#include "ptx/machine/exchange.hpp"
#include "ptx/machine/lanewise.hpp"
#include "ptx/machine/memory.hpp"

namespace stash::ptx {
namespace {

constexpr std::size_t alignment = 64;

/// Of a register: the values of all lanes, or a bit of each.
std::size_t bytes_of_lanes(std::uint8_t value_bytes) {
  return value_bytes == 0 ? sizeof(std::uint32_t) : std::size_t{value_bytes} * warp_lanes;
}

std::size_t rounded_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Bytes of a value of a type, 0 for predicates.
std::optional<std::uint8_t> bytes_of(std::string_view type) {
  if (type.starts_with('.')) type.remove_prefix(1);
  if (type == "pred") return std::uint8_t{0};
  if (type.ends_with("x2") || type.ends_with("32")) return std::uint8_t{4};
  if (type.ends_with("64")) return std::uint8_t{8};
  if (type.ends_with("16")) return std::uint8_t{2};
  if (type.ends_with("8")) return std::uint8_t{1};
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D") ||
      text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return negative ? 0 - value : value;
}

constexpr std::array<std::string_view, specials> special_names = {
    "%tid.x",   "%tid.y",       "%tid.z",       "%ntid.x",      "%ntid.y",      "%ntid.z",
    "%ctaid.x", "%ctaid.y",     "%ctaid.z",     "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
    "%laneid",  "%lanemask_lt", "%lanemask_le", "%lanemask_eq", "%lanemask_ge", "%lanemask_gt"};

/// [register + number] or [variable + number].
struct address_operand {
  operand base;
  std::int64_t added = 0;
};

class decoder {
 public:
  decoder(const entry_text& entry, const std::vector<std::string_view>& outside) : entry_(entry) {
    k_->facts.name = entry.name;
    k_->register_bytes = std::size_t{specials} * bytes_of_special;
    for (const std::string_view text : outside)
      read_outside(text);
    read_parameters();
    read_directives();
  }

  std::unique_ptr<kernel> run() {
    const std::vector<statement> statements = statements_of(entry_.body, entry_.line);
    scopes_.emplace_back();
    for (const statement& s : statements) {
      if (s.what == statement::sort::directive && s.name == ".shared") reserve_shared(s);
    }
    k_->dynamic_shared_offset = rounded_up(shared_bytes_, 16);
    for (const std::string_view name : dynamic_)
      variables_[name] = k_->dynamic_shared_offset;
    for (const statement& s : statements)
      take(s);
    for (const auto& [at, label] : jumps_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw problem(k_->code[at].line, "no label " + std::string(label));
      k_->code[at].target = found->second;
    }
    guard_.reset();
    if (k_->code.empty() || k_->code.back().kind != flow::end)
      emit(flow::end, {}, statements.empty() ? entry_.line : statements.back().line);
    k_->facts.shared_bytes = shared_bytes_;
    return std::move(k_);
  }

 private:
  struct registers {
    std::uint32_t offset = 0, count = 0;
    std::uint8_t bytes = 0;
  };
  using scope = std::map<std::string_view, registers, std::less<>>;

  violation problem(std::uint32_t line, const std::string& what) const {
    return violation("PTX line " + std::to_string(line) + " of " + std::string(entry_.name) + ": " + what);
  }

  violation unknown(const statement& s) const {
    return problem(s.line, "the machine does not know " + std::string(s.name));
  }

  void read_outside(std::string_view text) {
    constexpr std::string_view target = ".target sm_";
    if (const std::size_t at = text.find(target); at != std::string_view::npos) {
      const char* begin = text.data() + at + target.size();
      std::from_chars(begin, text.data() + text.size(), k_->facts.architecture);
    }
    // Shared memory as large as a launch says.
    constexpr std::string_view open = ".extern .shared";
    for (std::size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, at + 1)) {
      const std::size_t end = std::min(text.find(';', at), text.size());
      dynamic_.push_back(variable_of(text.substr(at, end - at), 0).name);
    }
  }

  /// ".param .align 8 .b8 name[80]", ".param .u64 name".
  void read_parameters() {
    if (entry_.parameters.empty()) return;
    std::size_t offset = 0;
    for (const std::string_view text : split(entry_.parameters, ',')) {
      const variable_text v = variable_of(text, entry_.line);
      offset = rounded_up(offset, v.alignment);
      k_->facts.parameters.push_back({offset, v.bytes});
      variables_[v.name] = offset;
      offset += v.bytes;
    }
    k_->facts.parameter_bytes = offset;
  }

  void read_directives() {
    for (const std::string_view word : {std::string_view(".maxntid"), std::string_view(".reqntid")}) {
      const std::size_t at = entry_.directives.find(word);
      if (at == std::string_view::npos) continue;
      std::uint64_t threads = 1;
      std::string_view rest = trimmed(entry_.directives.substr(at + word.size()));
      rest = rest.substr(0, std::min(rest.find('.'), rest.find('\n')));
      for (const std::string_view part : split(rest, ','))
        threads *= number_in(part).value_or(1);
      k_->facts.most_threads = static_cast<std::uint32_t>(threads);
    }
  }

  struct variable_text {
    std::string_view name;
    std::size_t alignment = 1, bytes = 0;
  };
  variable_text variable_of(std::string_view text, std::uint32_t line) const {
    variable_text v;
    std::size_t element = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      begin = std::min(text.find_first_not_of(" \t\r\n", end), text.size());
      if (word == ".align") {
        const std::size_t next = std::min(text.find_first_of(" \t\r\n", begin), text.size());
        v.alignment = number_in(text.substr(begin, next - begin)).value_or(1);
        begin = std::min(text.find_first_not_of(" \t\r\n", next), text.size());
      } else if (word.starts_with('.')) {
        if (const auto bytes = bytes_of(word)) element = *bytes;
      } else {
        v.name = word;
      }
    }
    const std::size_t bracket = v.name.find('[');
    v.bytes = element;
    if (bracket != std::string_view::npos) {
      const std::string_view count = v.name.substr(bracket + 1, v.name.find(']') - bracket - 1);
      v.bytes = element * number_in(count).value_or(0);
      v.name = v.name.substr(0, bracket);
    }
    v.alignment = std::max(v.alignment, element);
    if (v.name.empty() || element == 0)
      throw problem(line, "a variable that is not understood: " + std::string(text));
    return v;
  }

  void take(const statement& s) {
    switch (s.what) {
      case statement::sort::open:
        scopes_.emplace_back();
        return;
      case statement::sort::close:
        if (scopes_.size() == 1) throw problem(s.line, "a brace too many");
        scopes_.pop_back();
        return;
      case statement::sort::label:
        labels_[s.name] = static_cast<std::uint32_t>(k_->code.size());
        return;
      case statement::sort::directive:
        take_directive(s);
        return;
      case statement::sort::instruction:
        take_instruction(s);
        return;
    }
  }

  void take_directive(const statement& s) {
    if (s.name == ".reg") {
      for (std::string_view name : s.operands) {
        // The type stands in front of the first name.
        if (const std::size_t blank = name.find_first_of(" \t"); blank != std::string_view::npos) {
          type_ = name.substr(0, blank);
          name = trimmed(name.substr(blank));
        }
        declare(name, s.line);
      }
    } else if (s.name != ".pragma" && s.name != ".shared") {
      throw problem(s.line, "the directive " + std::string(s.name) + " is not known");
    }
  }
  void reserve_shared(const statement& s) {
    const variable_text v = variable_of(s.operands.at(0), s.line);
    shared_bytes_ = rounded_up(shared_bytes_, v.alignment);
    variables_[v.name] = shared_bytes_;
    shared_bytes_ += v.bytes;
  }

  /// "%r<569>" are 569 registers, "there" is one.
  void declare(std::string_view name, std::uint32_t line) {
    const auto bytes = bytes_of(type_);
    if (!bytes) throw problem(line, "registers of type " + std::string(type_));
    registers r;
    r.bytes = *bytes;
    r.count = 1;
    const std::size_t bracket = name.find('<');
    if (bracket != std::string_view::npos) {
      r.count = static_cast<std::uint32_t>(
          number_in(name.substr(bracket + 1, name.size() - bracket - 2)).value_or(0));
      name = name.substr(0, bracket);
    }
    r.offset = reserve(r);
    scopes_.back()[name] = r;
  }
  std::uint32_t reserve(const registers& r) {
    const std::size_t offset = rounded_up(k_->register_bytes, alignment);
    k_->register_bytes = offset + bytes_of_lanes(r.bytes) * r.count;
    return static_cast<std::uint32_t>(offset);
  }

  std::optional<operand> register_named(std::string_view name) const {
    for (std::size_t n = 0; n < special_names.size(); ++n) {
      if (name == special_names[n])
        return operand{static_cast<std::uint32_t>(n) * bytes_of_special, false, 4};
    }
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s) {
      if (const auto found = s->find(name); found != s->end())
        return operand{found->second.offset, false, found->second.bytes};
      const auto numbered = s->find(name.substr(0, digits));
      if (digits == name.size() || numbered == s->end()) continue;
      const registers& r = numbered->second;
      const std::uint64_t number = number_in(name.substr(digits)).value_or(r.count);
      if (number >= r.count) continue;
      return operand{static_cast<std::uint32_t>(r.offset + bytes_of_lanes(r.bytes) * number), false, r.bytes};
    }
    return std::nullopt;
  }

  void fill(std::uint32_t offset, std::uint64_t value, std::uint8_t bytes) {
    std::byte* to = reinterpret_cast<std::byte*>(k_->constants.data()) + offset;
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      std::memcpy(to + lane * std::size_t{bytes}, &value, bytes);
  }
  operand constant(std::uint64_t value, std::uint8_t bytes) {
    if (bytes == 0) {
      value = value != 0 ? all_lanes : 0;
    } else if (bytes < 8) {
      value &= (std::uint64_t{1} << (8 * bytes)) - 1;
    }
    const auto known = constants_.find({value, bytes});
    if (known != constants_.end()) return known->second;
    const operand made = new_constant(value, bytes);
    constants_.emplace(std::pair{value, bytes}, made);
    return made;
  }
  operand new_constant(std::uint64_t value, std::uint8_t bytes) {
    const operand made{static_cast<std::uint32_t>(k_->constants.size() * sizeof(std::uint64_t)), true, bytes};
    k_->constants.resize(k_->constants.size() +
                         (bytes == 0 ? 1 : bytes * warp_lanes / sizeof(std::uint64_t)));
    if (bytes == 0) {
      k_->constants.back() = value;
    } else {
      fill(made.offset, value, bytes);
    }
    return made;
  }

  /// A register, a number or a variable's address, for a register of so many bytes.
  operand source(std::string_view text, std::uint8_t bytes, std::uint32_t line) {
    if (bytes == 0 && text.starts_with('!')) {
      const operand plain = source(trimmed(text.substr(1)), 0, line);
      const operand negated{reserve({0, 1, 0}), false, 0};
      emit_form(integer_form({"not", "pred"}), {negated, plain}, line);
      return negated;
    }
    if (const auto found = register_named(text)) {
      if (found->bytes != bytes)
        throw problem(line, "a register of " + std::to_string(found->bytes) + " bytes where " +
                                std::to_string(bytes) + " are needed: " + std::string(text));
      return *found;
    }
    if (const auto value = number_in(text)) return constant(*value, bytes);
    if (const auto variable = variables_.find(text); variable != variables_.end())
      return constant(variable->second, bytes);
    throw problem(line, "an operand that is not understood: " + std::string(text));
  }

  operand result(std::string_view text, std::uint8_t bytes, std::uint32_t line) const {
    const auto found = register_named(text);
    if (text == "_") return operand{no_result, false, 0};
    if (!found || found->bytes != bytes)
      throw problem(line, "no register for the result: " + std::string(text));
    return *found;
  }

  /// "[%rd4+16]", "[name+8]", "[%r1]".
  address_operand address_at(std::string_view text, std::uint32_t line) {
    if (text.size() < 2 || text.front() != '[' || text.back() != ']')
      throw problem(line, "no address: " + std::string(text));
    text = trimmed(text.substr(1, text.size() - 2));
    address_operand p;
    const std::size_t plus = text.find('+');
    if (plus != std::string_view::npos) {
      p.added = static_cast<std::int64_t>(number_in(trimmed(text.substr(plus + 1))).value_or(0));
      text = trimmed(text.substr(0, plus));
    }
    if (const auto found = register_named(text)) {
      p.base = *found;
    } else {
      p.base = source(text, 8, line);
    }
    return p;
  }

  static std::vector<std::string_view> listed(std::string_view text) {
    return text.starts_with('{') ? split(text.substr(1, text.size() - 2), ',') : std::vector{text};
  }

  instruction& emit(flow kind, const form& f, std::uint32_t line) {
    instruction i;
    i.run = f.run;
    i.kind = kind;
    i.line = line;
    i.immediate = f.immediate;
    i.guarded = guard_.has_value();
    if (guard_) i.guard = guard_->offset;
    i.guard_negated = guard_negated_;
    k_->code.push_back(i);
    return k_->code.back();
  }
  void emit_form(const form& f, const std::vector<operand>& operands, std::uint32_t line,
                 flow kind = flow::plain) {
    instruction& i = emit(kind, f, line);
    std::copy(operands.begin(), operands.end(), i.operands.begin());
    i.count = static_cast<std::uint8_t>(operands.size());
  }

  void take_instruction(const statement& s) {
    guard_.reset();
    guard_negated_ = s.guard_negated;
    if (!s.guard.empty()) {
      guard_ = register_named(s.guard);
      if (!guard_ || guard_->bytes != 0) throw problem(s.line, "no predicate: " + std::string(s.guard));
    }
    const opcode_words opcode = split(s.name, '.');
    if (take_flow(s, opcode) || take_move(s, opcode) || take_memory(s, opcode) || take_exchange(s, opcode))
      return;
    if (take_combined_test(s, opcode)) return;
    for (const auto table : {integer_form, comparison_form, conversion_form, bits_form, float_form}) {
      const form f = table(opcode);
      if (f.run == nullptr) continue;
      take_lanewise(s, f);
      return;
    }
    throw unknown(s);
  }

  void take_lanewise(const statement& s, const form& f) {
    std::vector<std::string_view> texts = s.operands;
    // "first|second" are two results.
    if (!texts.empty() && texts[0].find('|') != std::string_view::npos) {
      const std::vector<std::string_view> both = split(texts[0], '|');
      texts.erase(texts.begin());
      texts.insert(texts.begin(), both.begin(), both.end());
    }
    if (texts.size() != f.widths.size())
      throw problem(s.line, std::string(s.name) + " with " + std::to_string(texts.size()) + " operands");
    const std::size_t results = texts.size() - (s.operands.size() - 1);
    const bool converts = s.name.starts_with("cvt.");
    std::vector<operand> operands;
    for (std::size_t n = 0; n < texts.size(); ++n) {
      operands.push_back(n < results ? result(texts[n], f.widths[n], s.line)
                         : converts  ? low_part(texts[n], f.widths[n], s.line)
                                     : source(texts[n], f.widths[n], s.line));
    }
    emit_form(f, operands, s.line);
  }
  /// The source of a conversion may be wider than its type.
  operand low_part(std::string_view text, std::uint8_t bytes, std::uint32_t line) {
    const auto found = register_named(text);
    if (!found || found->bytes <= bytes) return source(text, bytes, line);
    const auto type = [](std::uint8_t size) { return size == 8 ? "u64" : size == 4 ? "u32" : "u16"; };
    const operand part{reserve({0, 1, bytes}), false, bytes};
    emit_form(conversion_form({"cvt", type(bytes), type(found->bytes)}), {part, *found}, line);
    return part;
  }

  /// setp.ne.and.u32: a comparison, and what that comes to with a predicate.
  bool take_combined_test(const statement& s, const opcode_words& opcode) {
    if (opcode[0] != "setp" || opcode.size() != 4 || s.operands.size() != 4) return false;
    const form test = comparison_form({"setp", opcode[1], opcode[3]});
    const form combined = integer_form({opcode[2], "pred"});
    if (test.run == nullptr || test.widths.size() != 3 || combined.widths.size() != 3) return false;
    const operand incoming = source(s.operands[3], 0, s.line), held{reserve({0, 1, 0}), false, 0};
    emit_form(
        test,
        {held, source(s.operands[1], test.widths[1], s.line), source(s.operands[2], test.widths[2], s.line)},
        s.line);
    emit_form(combined, {result(s.operands[0], 0, s.line), held, incoming}, s.line);
    return true;
  }

  bool take_flow(const statement& s, const opcode_words& opcode) {
    const std::string_view op = opcode[0];
    if (op == "bra") {
      emit(flow::branch, {}, s.line);
      jumps_.emplace_back(k_->code.size() - 1, s.operands.at(0));
    } else if (op == "ret" || op == "exit") {
      emit(flow::end, {}, s.line);
    } else if (op == "nanosleep") {
      emit(flow::pause, {}, s.line);
    } else if (op == "bar" || op == "barrier") {
      if (opcode.size() == 3 && opcode[1] == "warp") {
        emit_form({}, {source(s.operands.at(0), 4, s.line)}, s.line, flow::meet);
      } else {
        if (s.operands.size() != 1 || s.operands[0] != "0")
          throw problem(s.line, "only barrier 0 of all threads is known");
        emit(flow::meet_block, {}, s.line);
      }
    } else if (op == "griddepcontrol" || op == "membar" || op == "fence" || op == "prefetch" ||
               s.name.starts_with("cp.async.bulk.prefetch")) {
      // Kernels run one after the other, and all see the same memory.
    } else {
      return false;
    }
    return true;
  }

  static form copy_of(std::uint8_t bytes) {
    if (bytes == 0) return integer_form({"mov", "pred"});
    if (bytes == 2) return form_of<[](std::uint16_t a) { return a; }>();
    if (bytes == 4) return form_of<[](std::uint32_t a) { return a; }>();
    return form_of<[](std::uint64_t a) { return a; }>();
  }
  /// Parts of a value, the lowest first: two of half, or four of a quarter.
  bool take_move(const statement& s, const opcode_words& opcode) {
    if (opcode[0] == "cvta") {
      take_address(s, opcode);
      return true;
    }
    if (opcode[0] != "mov") return false;
    const std::uint8_t bytes = bytes_of(opcode.back()).value_or(0);
    const std::string_view to = s.operands.at(0), from = s.operands.at(1);
    if (to.starts_with('{')) {
      const std::vector<std::string_view> parts = listed(to);
      const operand whole = source(from, bytes, s.line);
      const auto part = static_cast<std::uint8_t>(bytes / parts.size());
      for (std::size_t n = 0; n < parts.size(); ++n) {
        if (parts[n] == "_") continue;
        const operand target = result(parts[n], part, s.line);
        if (target.offset == whole.offset && !whole.constant)
          throw problem(s.line, "a part overwrites the whole");
        emit_form(part_form(bytes, part), {target, whole, constant(8 * part * n, 4)}, s.line);
      }
    } else if (from.starts_with('{')) {
      const std::vector<std::string_view> parts = listed(from);
      const auto part = static_cast<std::uint8_t>(bytes / parts.size());
      const operand target{reserve({0, 1, bytes}), false, bytes};
      emit_form(copy_of(bytes), {target, constant(0, bytes)}, s.line);
      for (std::size_t n = 0; n < parts.size(); ++n)
        emit_form(whole_form(bytes, part),
                  {target, target, source(parts[n], part, s.line), constant(8 * part * n, 4)}, s.line);
      emit_form(copy_of(bytes), {result(to, bytes, s.line), target}, s.line);
    } else {
      emit_form(copy_of(bytes), {result(to, bytes, s.line), source(from, bytes, s.line)}, s.line);
    }
    return true;
  }
  static form part_form(std::uint8_t whole, std::uint8_t part) {
    if (whole == 4 && part == 2)
      return form_of<[](std::uint32_t a, std::uint32_t by) { return static_cast<std::uint16_t>(a >> by); }>();
    if (whole == 8 && part == 4)
      return form_of<[](std::uint64_t a, std::uint32_t by) { return static_cast<std::uint32_t>(a >> by); }>();
    if (whole == 8 && part == 2)
      return form_of<[](std::uint64_t a, std::uint32_t by) { return static_cast<std::uint16_t>(a >> by); }>();
    throw violation("PTX: a move of parts that the machine does not know");
  }
  static form whole_form(std::uint8_t whole, std::uint8_t part) {
    if (whole == 4 && part == 2)
      return form_of<[](std::uint32_t a, std::uint16_t b, std::uint32_t by) {
        return a | std::uint32_t{b} << by;
      }>();
    if (whole == 8 && part == 4)
      return form_of<[](std::uint64_t a, std::uint32_t b, std::uint32_t by) {
        return a | std::uint64_t{b} << by;
      }>();
    if (whole == 8 && part == 2)
      return form_of<[](std::uint64_t a, std::uint16_t b, std::uint32_t by) {
        return a | std::uint64_t{b} << by;
      }>();
    throw violation("PTX: a move of parts that the machine does not know");
  }

  /// cvta: a generic address of one in a space, or, with "to", back.
  void take_address(const statement& s, const opcode_words& opcode) {
    const bool back = opcode.at(1) == "to";
    const std::string_view where = opcode.at(back ? 2 : 1);
    const std::uint64_t window = where == "shared" ? shared_window : where == "param" ? parameter_window : 0;
    const std::uint64_t added = back ? 0 - window : window;
    emit_form(integer_form({"add", "u64"}),
              {result(s.operands.at(0), 8, s.line), source(s.operands.at(1), 8, s.line), constant(added, 8)},
              s.line);
  }

  static std::optional<space> space_named(std::string_view word) {
    if (word == "global") return space::global;
    if (word == "shared") return space::shared;
    if (word == "param") return space::parameter;
    return std::nullopt;
  }

  bool take_memory(const statement& s, const opcode_words& opcode) {
    const std::string_view op = opcode[0];
    if (op == "atom" || op == "red") {
      take_atomic(s, opcode);
      return true;
    }
    if (op != "ld" && op != "st") return false;
    access a;
    // Other words say which caches to use, and in which order others see it.
    for (const std::string_view word : opcode) {
      if (const auto where = space_named(word)) a.where = *where;
      if (word == "v2") a.values = 2;
      if (word == "v4") a.values = 4;
    }
    const auto bytes = bytes_of(opcode.back());
    if (!bytes || *bytes == 0) throw unknown(s);
    a.bytes = *bytes;
    a.is_signed = opcode.back().starts_with('s');
    const bool load = op == "ld";
    const std::vector<std::string_view> values = listed(s.operands.at(load ? 0 : 1));
    const address_operand at = address_at(s.operands.at(load ? 1 : 0), s.line);
    std::vector<operand> operands;
    for (const std::string_view value : values) {
      const auto found = register_named(value);
      a.register_bytes = found ? found->bytes : std::max<std::uint8_t>(a.bytes, 2);
      operands.push_back(found ? *found : source(value, a.register_bytes, s.line));
    }
    operands.insert(load ? operands.end() : operands.begin(), at.base);
    form f{load ? load_handler(a) : store_handler(a)};
    if (f.run == nullptr || values.size() != a.values) throw unknown(s);
    f.immediate = at.added;
    emit_form(f, operands, s.line);
    return true;
  }

  void take_atomic(const statement& s, const opcode_words& opcode) {
    const bool has_result = opcode[0] == "atom";
    space where = space::generic;
    form f;
    for (const std::string_view word : opcode) {
      if (const auto named = space_named(word)) where = *named;
    }
    for (const std::string_view word : opcode) {
      if (f.run == nullptr) f = atomic_form(word, opcode.back(), where);
    }
    if (f.run == nullptr) throw unknown(s);
    std::vector<operand> operands;
    std::size_t next = 0;
    operands.push_back(has_result ? result(s.operands.at(next++), f.widths[0], s.line)
                                  : operand{no_result, false, 0});
    const address_operand at = address_at(s.operands.at(next++), s.line);
    operands.push_back(at.base);
    for (; next < s.operands.size(); ++next)
      operands.push_back(source(s.operands[next], f.widths[2], s.line));
    f.immediate = at.added;
    emit_form(f, operands, s.line);
  }

  bool take_exchange(const statement& s, const opcode_words& opcode) {
    const std::string_view op = opcode[0];
    if (op == "shfl") {
      const form f = shuffle_form(opcode.at(2));
      if (f.run == nullptr || s.operands.size() != 5) throw unknown(s);
      const std::vector<std::string_view> results = split(s.operands[0], '|');
      std::vector<operand> operands{result(results[0], 4, s.line)};
      operands.push_back(results.size() > 1 ? result(results[1], 0, s.line) : operand{no_result, false, 0});
      for (std::size_t n = 1; n < 5; ++n)
        operands.push_back(source(s.operands[n], 4, s.line));
      emit_form(f, operands, s.line, flow::meet);
    } else if (op == "vote") {
      const form f = vote_form(opcode.at(2));
      if (f.run == nullptr || s.operands.size() != 3) throw unknown(s);
      const std::vector<operand> operands{result(s.operands[0], f.widths[0], s.line),
                                          source(s.operands[1], 0, s.line), source(s.operands[2], 4, s.line)};
      emit_form(f, operands, s.line, flow::meet);
    } else {
      return false;
    }
    return true;
  }

  entry_text entry_;
  std::unique_ptr<kernel> k_ = std::make_unique<kernel>();
  std::vector<scope> scopes_;
  std::string_view type_;
  std::map<std::string_view, std::uint64_t, std::less<>>
      variables_;  ///< where in shared memory, or among parameters
  std::vector<std::string_view> dynamic_;
  std::map<std::string_view, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> jumps_;
  std::map<std::pair<std::uint64_t, std::uint8_t>, operand> constants_;
  std::optional<operand> guard_;
  bool guard_negated_ = false;
  std::size_t shared_bytes_ = 0;
};

}  // namespace

std::unique_ptr<kernel> decoded(const entry_text& entry, const std::vector<std::string_view>& outside) {
  return decoder(entry, outside).run();
}

}  // namespace stash::ptx
