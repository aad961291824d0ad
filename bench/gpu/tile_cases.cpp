// SPDX-License-Identifier: Apache-2.0
// What is made of bitmaps and csr besides decoding them: canonicalise and csr_export32.

#include <memory>
#include <string>

#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"
#include "stash/csr.hpp"

namespace stash::gpu {
namespace {

constexpr encoding csr{.kind = encoding_kind::csr};

/// A form as encoded, its tiles in whatever order blocks came, and its canonical bytes.
class canonical_form {
 public:
  canonical_form(const encoding& e, const map_form& form, map_source& maps)
      : type_(form.type),
        elements_(form.elements()),
        from_(stored(e, *maps.after_relu(form), type_)),
        to_(e, type_, elements_) {
    run(nullptr);
    wait_for_device();
    verify();
  }

  void reset(void* stream) const { to_.reset(stream); }
  void run(void* stream) const {
    canonicalise({from_->how(), type_, {elements_}, from_->read()}, to_.write(), on_device(stream));
  }
  /// What both hold has one size in either order.
  void verify() const {
    from_->verify();
    to_.verify();
    const encode_report from = from_->report(), to = to_.report();
    if (from.nonzeros != to.nonzeros || from.slot_bytes != to.slot_bytes)
      throw failure(to_string(from_->how()) + ": the canonical form is another one");
  }
  std::uint64_t read_bytes() const { return from_->bytes(); }
  std::uint64_t written_bytes() const { return to_.bytes(); }

 private:
  dtype type_;
  std::int64_t elements_;
  shared_store from_;
  stored_map to_;
};

measured_case canonicalise_case(const encoding& e) {
  return {"canonicalise/" + to_string(e), takes_floats,
          [e](const map_form& form, map_source& maps) -> prepared_case {
            const auto work = std::make_shared<canonical_form>(e, form, maps);
            return {[=](void* stream) { work->reset(stream); },
                    [=](void* stream) { work->run(stream); },
                    [=] { work->verify(); },
                    work->read_bytes() + work->written_bytes(),
                    work->written_bytes(),
                    static_cast<std::uint64_t>(form.bytes)};
          }};
}

/// csr and the arrays that libraries take, which have space for its non-zeros and no more.
class csr_export {
 public:
  csr_export(const map_form& form, map_source& maps)
      : type_(form.type),
        elements_(form.elements()),
        from_(stored(csr, *maps.after_relu(form), type_)),
        nonzeros_(from_->report().nonzeros),
        offsets_(static_cast<std::size_t>(rows(elements_) + 1) * offset_bytes),
        columns_(nonzeros_ * offset_bytes),
        values_(nonzeros_ * size_of(type_)) {}

  /// So that the count of another call does not pass for this one's.
  void reset(void* stream) const { fill(count(), 0xff, offset_bytes, stream); }
  void run(void* stream) const {
    const csr32_view out{static_cast<std::uint32_t*>(offsets_.data()),
                         static_cast<std::uint32_t*>(columns_.data()), values_.data(), type_,
                         static_cast<std::int64_t>(nonzeros_)};
    csr_export32({csr, out.type, {elements_}, from_->read()}, out, on_device(stream));
  }
  void verify() const {
    from_->verify();
    std::uint32_t found = 0;
    download(&found, count(), sizeof found);
    if (found != nonzeros_)
      throw failure("csr_export32: " + std::to_string(found) + " of " + std::to_string(nonzeros_) +
                    " entries");
  }
  std::uint64_t encoded_bytes() const { return from_->bytes(); }
  std::uint64_t moved_bytes() const {
    return from_->bytes() + offsets_.size() + columns_.size() + values_.size();
  }

 private:
  static constexpr std::size_t offset_bytes = sizeof(std::uint32_t);

  static constexpr std::int64_t rows(std::int64_t elements) {
    return (elements + csr_row_elements - 1) / csr_row_elements;
  }
  /// The last offset.
  void* count() const { return offsets_.bytes() + offsets_.size() - offset_bytes; }

  dtype type_;
  std::int64_t elements_;
  shared_store from_;
  std::uint64_t nonzeros_;
  memory offsets_, columns_, values_;
};

measured_case csr_export_case() {
  return {"csr_export32/csr", takes_floats, [](const map_form& form, map_source& maps) -> prepared_case {
            const auto work = std::make_shared<csr_export>(form, maps);
            return {[=](void* stream) { work->reset(stream); },
                    [=](void* stream) { work->run(stream); },
                    [=] { work->verify(); },
                    work->moved_bytes(),
                    work->encoded_bytes(),
                    static_cast<std::uint64_t>(form.bytes)};
          }};
}

}  // namespace

std::vector<measured_case> tile_cases() {
  return {canonicalise_case({.kind = encoding_kind::bitmap}), canonicalise_case(csr), csr_export_case()};
}

}  // namespace stash::gpu
