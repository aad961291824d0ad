// SPDX-License-Identifier: Apache-2.0
#include "kernels/attributes.hpp"

#include <string>

#include "absl/strings/str_cat.h"

namespace stash_tf {

absl::Status read_encoding(tensorflow::OpKernelConstruction* context, stash_encoding* encoding) {
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("encoding", &name));
  *encoding = STASH_INIT(stash_encoding);
  TF_RETURN_IF_ERROR(from_core(absl::StrCat(context->def().op(), ": encoding"),
                               stash_parse_encoding(name.c_str(), encoding)));
  encoding->rule = STASH_RULE_TENSORFLOW;
  return absl::OkStatus();
}

absl::Status read_sign_encoding(tensorflow::OpKernelConstruction* context, stash_encoding* encoding) {
  TF_RETURN_IF_ERROR(read_encoding(context, encoding));
  switch (encoding->kind) {
    case STASH_KIND_CAST:
      encoding->underflow = STASH_UNDERFLOW_KEEP_NONZERO;
      break;
    case STASH_KIND_RAW:
    case STASH_KIND_SIGN_MASK:
    case STASH_KIND_BITMAP:
    case STASH_KIND_CSR:
      break;
    default: {
      std::string name;
      TF_RETURN_IF_ERROR(context->GetAttr("encoding", &name));
      return wrong(context->def().op(), "encoding", "one that keeps the sign", name);
    }
  }
  return check_type(context->def().op(), *encoding, context->input_type(0));
}

absl::Status check_type(absl::string_view op, const stash_encoding& encoding, tensorflow::DataType type) {
  std::size_t bytes = 0;
  const std::int32_t code = stash_encoded_bytes_bound(&encoding, core_type(type), 1, &bytes);
  return from_core(absl::StrCat(op, ": encoding"), code);
}

}  // namespace stash_tf
