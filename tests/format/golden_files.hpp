// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Reading tests/format/golden: tensors and their encoded bytes as text. Words are hexadecimal numbers, the
/// most significant digit first; bytes are listed as they lie in memory; w*n stands for n times the word w.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "format/reference.hpp"

namespace stash::golden {

using json = nlohmann::ordered_json;

/// The files of a folder, by name. Throws std::runtime_error for one that is not JSON, or if there is none.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder);
json read_file(const std::filesystem::path& path);

/// Throw std::runtime_error for text that is not as described above, or a word that is too large.
std::vector<std::uint32_t> words(std::string_view text);
std::vector<std::uint8_t> bytes(std::string_view text);
std::string text_of_words(const std::vector<std::uint32_t>& all, dtype type);
std::string text_of_bytes(const std::vector<std::uint8_t>& all);

/// "f32", "f16", "bf16" or "u8".
dtype type_of(const json& test_case);
/// From the file's "encoding" and the case's "underflow", "rule", "lower" and "upper"; names are looked up
/// here and not in the library.
encoding encoding_of(const std::string& name, const json& test_case);
reference::tensor tensor_of(const json& test_case);
/// "bytes", or the "bytes" of all "parts" in a row.
std::vector<std::uint8_t> bytes_of(const json& test_case);

}  // namespace stash::golden
