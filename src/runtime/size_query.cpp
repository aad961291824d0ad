#include "stash/size_query.hpp"

#include "encoders/detail.hpp"
#include "encoders/encoding_checks.hpp"

namespace stash {

size_query::size_query(const encoding& e, dtype source, std::int64_t elements,
                       const const_encoded_view& stored, const execution_context& context) {
  constexpr std::string_view function = "size_query";
  detail::check_host_context(function, context);
  const std::size_t bound = detail::checked_bytes_bound(function, e, source, elements);
  detail::check_encoded(function, "stored", stored, detail::bytes_needed(e, source, elements));
  const encode_report& report = *stored.report;
  const bool sparse = e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
  size_.bytes = sparse ? report.slot_bytes : bound;
  size_.overflow_bytes = report.overflow_bytes;
  size_.nonzeros = report.nonzeros;
  if (sparse && elements != 0) {
    size_.density = static_cast<double>(report.nonzeros) / static_cast<double>(elements);
  }
  size_.status = report.status;
}

bool size_query::ready() const noexcept {
  return true;
}

stored_size size_query::wait() const {
  return size_;
}

}  // namespace stash
