// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Damaged JSON documents that still are JSON: a valid document with edits that the input asks for.

#include <string>
#include <string_view>

#include "fuzz/target.hpp"

namespace stash::fuzz {

/// The text that an input means: its first byte names one of the documents (half of the time the first, which
/// should be the smallest), and every four bytes after it edit one of its values: a number or text becomes
/// another one, a member goes, an element comes twice, a value is put in place of another. A first byte
/// from 128 on: the rest is the text itself. A program asks with the same documents each time.
std::string edited_text(std::span<const std::uint8_t> input, const std::vector<std::string>& documents);

/// Inputs that leave the documents as they are, edit them a little, and give them as text.
std::vector<bytes> document_seeds(const std::vector<std::string>& documents);

}  // namespace stash::fuzz
