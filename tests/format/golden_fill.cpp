// SPDX-License-Identifier: Apache-2.0
// Completes golden files: a case without bytes gets those of the reference of docs/format.md. The library
// takes no part.

#include <cstdio>
#include <exception>
#include <fstream>

#include "format/golden_files.hpp"

namespace stash::golden {
namespace {

void fill(const std::filesystem::path& path) {
  json file = read_file(path);
  for (json& test_case : file.at("cases")) {
    if (test_case.contains("bytes") || test_case.contains("parts")) continue;
    const encoding e = encoding_of(file.at("encoding").get<std::string>(), test_case);
    const reference::tensor t = tensor_of(test_case);
    test_case["bytes"] = text_of_bytes(reference::encode(e, t).bytes);
    const reference::tensor back = reference::decode(e, t);
    const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
    test_case["decoded"] = text_of_words(back.bits, mask ? dtype::u8 : t.type);
  }
  std::ofstream(path) << file.dump(1) << '\n';
}

}  // namespace
}  // namespace stash::golden

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i)
      stash::golden::fill(argv[i]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "format_golden_fill: %s\n", e.what());
    return 1;
  }
}
