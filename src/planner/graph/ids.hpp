// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Numbers that name things, each kind a type of its own, and tables that only such a number opens. So an op
/// is never looked up among storages.

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace stash::planner {

/// Becomes the id of any kind that names nothing.
struct no_id_t {};
inline constexpr no_id_t no_id;

/// The place of something in the table of its kind, or no_id. Ids are ordered as in the table; `+` and `-`
/// are steps along it.
template <class Kind>
class typed_id {
 public:
  constexpr typed_id() noexcept = default;
  constexpr typed_id(no_id_t) noexcept {}  // NOLINT(google-explicit-constructor): it is every kind's
  template <std::integral Number>
  constexpr explicit typed_id(Number number) noexcept : number_(static_cast<std::int32_t>(number)) {}

  /// Whether it names something. Ids of documents from outside may still lie beyond their table.
  constexpr bool valid() const noexcept { return number_ >= 0; }
  /// As texts have it; -1: none.
  constexpr std::int32_t number() const noexcept { return number_; }

  constexpr typed_id& operator++() noexcept {
    ++number_;
    return *this;
  }
  constexpr typed_id operator--(int) noexcept {
    const typed_id before = *this;
    --number_;
    return before;
  }
  friend constexpr typed_id operator+(typed_id id, std::int32_t steps) noexcept {
    return typed_id(id.number_ + steps);
  }
  friend constexpr typed_id operator-(typed_id id, std::int32_t steps) noexcept {
    return typed_id(id.number_ - steps);
  }
  /// Steps from `b` to `a`.
  friend constexpr std::int32_t operator-(typed_id a, typed_id b) noexcept { return a.number_ - b.number_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero of comparisons for a pointer
  friend constexpr auto operator<=>(const typed_id&, const typed_id&) noexcept = default;

 private:
  std::int32_t number_ = -1;
};

template <class Id>
inline constexpr bool is_typed_id = false;
template <class Kind>
inline constexpr bool is_typed_id<typed_id<Kind>> = true;

/// What may open a table of `Id`: that kind of id alone, or any whole number where Id is one.
template <class Key, class Id>
concept key_of = (is_typed_id<Id> ? std::same_as<Key, Id> : std::integral<Key>);

/// Where a number stands in a table. It is not negative.
template <std::integral Number>
constexpr std::size_t position_of(Number number) noexcept {
  return static_cast<std::size_t>(number);
}
template <class Kind>
constexpr std::size_t position_of(typed_id<Kind> id) noexcept {
  return static_cast<std::size_t>(id.number());
}

/// All ids of a table of so many rows, in order.
template <class Id>
class id_range {
 public:
  class iterator {
   public:
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    constexpr iterator() noexcept = default;
    constexpr explicit iterator(std::size_t at) noexcept : at_(at) {}
    constexpr Id operator*() const noexcept { return static_cast<Id>(at_); }
    constexpr iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    constexpr iterator operator++(int) noexcept { return iterator(at_++); }
    friend constexpr bool operator==(iterator, iterator) noexcept = default;

   private:
    std::size_t at_ = 0;
  };

  constexpr explicit id_range(std::size_t count) noexcept : count_(count) {}
  constexpr iterator begin() const noexcept { return iterator(0); }
  constexpr iterator end() const noexcept { return iterator(count_); }

 private:
  std::size_t count_;
};

/// A vector that ids open. Where `Id` is a plain number (ticks, say), it is a name for what the rows are.
template <class Id, class T>
class id_vector {
 public:
  using list_type = std::vector<T>;
  using value_type = T;
  using size_type = typename list_type::size_type;
  using reference = typename list_type::reference;
  using const_reference = typename list_type::const_reference;
  using iterator = typename list_type::iterator;
  using const_iterator = typename list_type::const_iterator;

  id_vector() = default;
  explicit id_vector(std::size_t count, const T& row = T()) : rows_(count, row) {}
  id_vector(std::initializer_list<T> rows) : rows_(rows) {}
  explicit id_vector(list_type rows) noexcept : rows_(std::move(rows)) {}

  /// The id is one of ids().
  template <key_of<Id> Key>
  reference operator[](Key id) {
    return rows_[position_of(id)];
  }
  template <key_of<Id> Key>
  const_reference operator[](Key id) const {
    return rows_[position_of(id)];
  }
  /// Throws std::out_of_range for any other id.
  template <key_of<Id> Key>
  reference at(Key id) {
    return rows_.at(position_of(id));
  }
  template <key_of<Id> Key>
  const_reference at(Key id) const {
    return rows_.at(position_of(id));
  }
  template <key_of<Id> Key>
  bool contains(Key id) const noexcept {
    return position_of(id) < rows_.size();  // none is beyond all
  }

  id_range<Id> ids() const noexcept { return id_range<Id>(rows_.size()); }
  /// That of the row that push_back() adds next.
  Id next_id() const noexcept { return static_cast<Id>(rows_.size()); }
  Id last_id() const noexcept { return static_cast<Id>(rows_.size() - 1); }
  Id id_of(const_iterator at) const noexcept { return static_cast<Id>(at - rows_.begin()); }

  Id push_back(T row) {
    rows_.push_back(std::move(row));
    return last_id();
  }
  template <class... Args>
  reference emplace_back(Args&&... args) {
    return rows_.emplace_back(std::forward<Args>(args)...);
  }
  void pop_back() { rows_.pop_back(); }
  void assign(std::size_t count, const T& row) { rows_.assign(count, row); }
  void resize(std::size_t count) { rows_.resize(count); }
  void reserve(std::size_t count) { rows_.reserve(count); }
  void clear() noexcept { rows_.clear(); }
  template <class Unwanted>
  void erase_if(Unwanted unwanted) {
    std::erase_if(rows_, unwanted);
  }
  iterator insert(const_iterator at, T row) { return rows_.insert(at, std::move(row)); }
  iterator erase(const_iterator at) { return rows_.erase(at); }

  std::size_t size() const noexcept { return rows_.size(); }
  bool empty() const noexcept { return rows_.empty(); }
  reference front() { return rows_.front(); }
  const_reference front() const { return rows_.front(); }
  reference back() { return rows_.back(); }
  const_reference back() const { return rows_.back(); }
  iterator begin() noexcept { return rows_.begin(); }
  iterator end() noexcept { return rows_.end(); }
  const_iterator begin() const noexcept { return rows_.begin(); }
  const_iterator end() const noexcept { return rows_.end(); }
  const list_type& list() const noexcept { return rows_; }

  friend bool operator==(const id_vector&, const id_vector&) = default;

 private:
  list_type rows_;
};

}  // namespace stash::planner

template <class Kind>
struct std::hash<stash::planner::typed_id<Kind>> {
  std::size_t operator()(stash::planner::typed_id<Kind> id) const noexcept {
    return std::hash<std::int32_t>()(id.number());
  }
};
