// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the programs that run on a GPU write down: where a result comes from, and the file.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/gpu/device.hpp"

namespace stash::gpu {

/// One line: name, compute capability, memory, versions.
std::string text_of(const device_facts& f);
nlohmann::ordered_json json_of(const device_facts& f);

/// "format", "command", "stash", "commit" and "compiler".
nlohmann::ordered_json record_start(const std::string& format, const std::string& command);

/// Replaces the file at once: whoever kills the program finds the old record or the new one. Throws
/// std::runtime_error if the file cannot be written, or is there and not an ordinary file.
void write_json(const std::string& path, const nlohmann::ordered_json& record);

/// Writes `start` with its results under the name `list`, and whether they are "complete". If they are not,
/// `running` names what is being done now; it is empty when all is done. Does nothing without a path.
void write_results(const std::string& path, const nlohmann::ordered_json& start, const std::string& list,
                   const nlohmann::ordered_json& results, const std::string& running);

}  // namespace stash::gpu
