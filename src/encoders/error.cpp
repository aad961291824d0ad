// SPDX-License-Identifier: Apache-2.0
#include "stash/error.hpp"

namespace stash {

std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::ok:
      return "ok";
    case errc::invalid_argument:
      return "invalid_argument";
    case errc::unsupported:
      return "unsupported";
    case errc::out_of_memory:
      return "out_of_memory";
    case errc::capacity_exceeded:
      return "capacity_exceeded";
    case errc::corrupt_data:
      return "corrupt_data";
    case errc::io_failure:
      return "io_failure";
    case errc::bad_format:
      return "bad_format";
    case errc::infeasible_budget:
      return "infeasible_budget";
    case errc::verification_failed:
      return "verification_failed";
    case errc::interrupted:
      return "interrupted";
    case errc::internal:
      return "internal";
    case errc::device_failure:
      return "device_failure";
  }
  return "unknown";
}

}  // namespace stash
