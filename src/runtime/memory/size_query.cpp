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
  if (encoders::is_tiled(e.kind)) size.bytes = report.slot_bytes;
  size.overflow_bytes = report.overflow_bytes;
  size.nonzeros = report.nonzeros;
  if (encoders::is_tiled(e.kind) && elements != 0) {
    size.density = static_cast<double>(report.nonzeros) / static_cast<double>(elements);
  }
  size.status = report.status;
}

}  // namespace

/// A copy that is on its way.
struct size_query::pending {
  pending(const encoding& e, std::int64_t n, const encode_report* report, void* stream)
      : how(e), elements(n) {
    encoders::device::copy(copy.get(), report, sizeof(encode_report), stream);
    try {
      arrived = encoders::device::record_event(stream);
    } catch (...) {
      // The slot goes to somebody else, and the copy may still write.
      runtime::wait_quietly(stream);
      throw;
    }
  }
  ~pending() {
    runtime::wait_quietly_for(arrived);
    encoders::device::destroy_event(arrived);
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;

  encoding how;
  std::int64_t elements;
  runtime::report_slot copy;
  encoders::device::event arrived = nullptr;
};

size_query::size_query(const encoded_tensor& stored, const execution_context& context) try {
  constexpr std::string_view function = "size_query";
  encoders::check_context(function, context);
  const std::int64_t elements = stored.elements();
  size_.bytes = encoders::checked_bytes_bound(function, "stored", stored.how, stored.type, elements);
  encoders::check_encoded(function, "stored", stored.bytes,
                          encoders::bytes_needed(stored.how, stored.type, elements));
  if (encoders::on_device(context)) {
    pending_ = std::make_shared<pending>(stored.how, elements, stored.bytes.report, context.stream);
  } else {
    complete(size_, stored.how, elements, *stored.bytes.report);
  }
} catch (...) {
  encoders::rethrow("size_query");
}

size_query::size_query(const encoding& e, const const_tensor_view& input, encode_report* report,
                       const execution_context& context) try {
  constexpr std::string_view function = "size_query";
  encoders::check_count_input(function, e, input, context);
  encoders::check_encoded(function, "report", nullptr, 0, report, 0);
  encoders::call_memory(function).reads("input", input).writes("report", report, sizeof *report);
  const std::int64_t elements = input.elements();
  size_.bytes = encoders::bytes_bound(e, input.type, elements);
  if (!encoders::is_tiled(e.kind)) return;
  encoders::run_count(e, input, *report, context);
  if (encoders::on_device(context)) {
    pending_ = std::make_shared<pending>(e, elements, report, context.stream);
  } else {
    complete(size_, e, elements, *report);
  }
} catch (...) {
  encoders::rethrow("size_query");
}

bool size_query::ready() const noexcept {
  if (pending_ == nullptr) return true;
  try {
    return encoders::device::reached(pending_->arrived);
  } catch (const std::exception&) {
    return true;  // wait() says what is wrong
  }
}

stored_size size_query::wait() const try {
  stored_size size = size_;
  if (pending_ != nullptr) {
    encoders::device::wait_for_event(pending_->arrived);
    complete(size, pending_->how, pending_->elements, *pending_->copy.get());
  }
  return size;
} catch (...) {
  encoders::rethrow("size_query::wait");
}

}  // namespace stash
