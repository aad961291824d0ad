// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the targets of the data readers share.

#include "data/dataset.hpp"
#include "fuzz/target.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {

/// Runs a reader: true if it returned, false if it threw error(bad_format); nothing else may happen.
template <class Read>
bool accepts_or_refuses(const Read& read) {
  try {
    read();
    return true;
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return false;
  }
}

/// The counts, extents and labels of an accepted data set belong together.
void require_consistent(const data::dataset& d);

/// One gz member.
bytes zipped(const bytes& content);

}  // namespace stash::fuzz
