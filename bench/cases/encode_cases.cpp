// SPDX-License-Identifier: Apache-2.0
// encode/NAME and decode/NAME: every encoding of a feature map after its ReLU.

#include <string>
#include <utility>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

encoding named(const std::string& name) {
  encoding e = parse_encoding(name);
  if (e.values != value_format::source) e.underflow = underflow_rule::keep_nonzero;
  return e;
}

prepared_call prepare_encode(const encoding& e, const case_setup& setup) {
  const auto x = map_after_relu(setup);
  const auto kept = std::make_shared<encoded>(e, *x, setup.context);
  return {[=, context = setup.context] { encode(e, x->read(), kept->write(), {}, context); },
          x->bytes() + kept->bytes(),
          kept->bytes(),
          {}};
}

prepared_call prepare_decode(const encoding& e, const case_setup& setup) {
  const auto x = map_after_relu(setup);
  const auto kept = std::make_shared<encoded>(e, *x, setup.context);
  return {[=, context = setup.context] {
            decode({e, x->view().type, x->view().dims, kept->read()}, x->view(), {}, context);
          },
          x->bytes() + kept->bytes(),
          kept->bytes(),
          {}};
}

}  // namespace

std::vector<encoding> benched_encodings() {
  std::vector<encoding> all;
  for (const char* const name : {"raw", "sign_mask", "range_mask", "bitmap", "csr"})
    all.push_back(named(name));
  for (const char* const container : {"", "bitmap_", "csr_"}) {
    for (const value_format_info& format : value_formats)
      all.push_back(named(container + std::string(format.name)));
  }
  return all;
}

std::vector<bench_case> encode_cases() {
  std::vector<bench_case> cases;
  for (const encoding& e : benched_encodings()) {
    const std::string name = to_string(e);
    cases.push_back({"encode/" + name, [e](const case_setup& s) { return prepare_encode(e, s); }});
    // A mask has no values to give back: its readers are the layers.
    if (e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask) continue;
    cases.push_back({"decode/" + name, [e](const case_setup& s) { return prepare_decode(e, s); }});
  }
  return cases;
}

}  // namespace stash::bench
