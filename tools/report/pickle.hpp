// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Python's pickles, for tools that read nothing else.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stash::tools {

/// A pickle of protocol 2 whose load gives what Python's json.loads gives of the same document. Whole numbers
/// up to 2^63 - 1.
std::string to_pickle(const nlohmann::ordered_json& document);

}  // namespace stash::tools
