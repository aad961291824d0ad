// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// SHA-256 of bytes that come part by part: runs that must agree bit for bit are compared by it.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's context

namespace stash::runtime {

/// Move-only; a moved-from object may only be destroyed or assigned to. Throws error(internal) if OpenSSL
/// offers no SHA-256 or fails.
class sha256 {
 public:
  sha256();

  /// Appends bytes to what is hashed; how they are cut into calls does not matter.
  void update(std::span<const std::byte> bytes);

  /// Digest of everything so far in 64 lower-case hexadecimal digits. More may be appended afterwards.
  std::string hex() const;

 private:
  struct context_deleter {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_md_ctx_st, context_deleter> context_;
};

}  // namespace stash::runtime
