// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Slots for reports on their way from a device: pinned memory of the host. The driver takes long to pin
/// memory, and waits for the whole device to free it, so pages are pinned when there is no slot left and
/// kept until the process ends, for whoever comes next. Thread-safe.

#include "stash/status.hpp"

namespace stash::runtime {

/// One slot, as long as this object lives. No copy into it may be under way when it ends.
class report_slot {
 public:
  /// Throws error(out_of_memory), and error(device_failure) where pinning fails for another reason.
  report_slot();
  ~report_slot();
  report_slot(const report_slot&) = delete;
  report_slot& operator=(const report_slot&) = delete;

  encode_report* get() const noexcept { return report_; }

 private:
  encode_report* report_;
};

}  // namespace stash::runtime
