// SPDX-License-Identifier: Apache-2.0
#include "stash/size_query.hpp"

#include <new>

#include "encoders/detail.hpp"
#include "encoders/device/device_memory.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/public_call.hpp"
#include "runtime/memory/quiet_waits.hpp"
#include "runtime/memory/report_slots.hpp"

namespace stash {
namespace {

/// Adds what a report says.
void complete(stored_size& size, const encoding& e, std::int64_t elements,
              const encode_report& report) noexcept {
  if (detail::is_tiled(e.kind)) size.bytes = report.slot_bytes;
  size.overflow_bytes = report.overflow_bytes;
  size.nonzeros = report.nonzeros;
  if (detail::is_tiled(e.kind) && elements != 0) {
    size.density = static_cast<double>(report.nonzeros) / static_cast<double>(elements);
  }
  size.status = report.status;
}

}  // namespace

/// A copy that is on its way.
struct size_query::pending {
  pending(const encoding& e, std::int64_t n, const encode_report* report, void* stream)
      : how(e), elements(n) {
    detail::device::copy(copy.get(), report, sizeof(encode_report), stream);
    try {
      arrived = detail::device::record_event(stream);
    } catch (...) {
      // The slot goes to somebody else, and the copy may still write.
      runtime::wait_quietly(stream);
      throw;
    }
  }
  ~pending() {
    runtime::wait_quietly_for(arrived);
    detail::device::destroy_event(arrived);
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;

  encoding how;
  std::int64_t elements;
  runtime::report_slot copy;
  detail::device::event arrived = nullptr;
};

size_query::size_query(const encoded_tensor& stored, const execution_context& context) try {
  constexpr std::string_view function = "size_query";
  detail::check_context(function, context);
  const std::int64_t elements = stored.elements();
  size_.bytes = detail::checked_bytes_bound(function, "stored", stored.how, stored.type, elements);
  detail::check_encoded(function, "stored", stored.bytes,
                        detail::bytes_needed(stored.how, stored.type, elements));
  if (detail::on_device(context)) {
    pending_ = std::make_shared<pending>(stored.how, elements, stored.bytes.report, context.stream);
  } else {
    complete(size_, stored.how, elements, *stored.bytes.report);
  }
} catch (...) {
  detail::rethrow("size_query");
}

size_query::size_query(const encoding& e, const const_tensor_view& input, encode_report* report,
                       const execution_context& context) try {
  constexpr std::string_view function = "size_query";
  detail::check_count_input(function, e, input, context);
  detail::check_encoded(function, "report", nullptr, 0, report, 0);
  detail::call_memory(function).reads("input", input).writes("report", report, sizeof *report);
  const std::int64_t elements = input.elements();
  size_.bytes = detail::bytes_bound(e, input.type, elements);
  if (!detail::is_tiled(e.kind)) return;
  detail::run_count(e, input, *report, context);
  if (detail::on_device(context)) {
    pending_ = std::make_shared<pending>(e, elements, report, context.stream);
  } else {
    complete(size_, e, elements, *report);
  }
} catch (...) {
  detail::rethrow("size_query");
}

bool size_query::ready() const noexcept {
  if (pending_ == nullptr) return true;
  try {
    return detail::device::reached(pending_->arrived);
  } catch (const std::exception&) {
    return true;  // wait() says what is wrong
  }
}

stored_size size_query::wait() const try {
  stored_size size = size_;
  if (pending_ != nullptr) {
    detail::device::wait_for_event(pending_->arrived);
    complete(size, pending_->how, pending_->elements, *pending_->copy.get());
  }
  return size;
} catch (...) {
  detail::rethrow("size_query::wait");
}

}  // namespace stash
