// SPDX-License-Identifier: Apache-2.0
#include "runtime/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "stash/error.hpp"

namespace stash::runtime {
namespace {

void require(bool done, const char* step) {
  if (!done)
    throw error(errc::internal, fmt::format("sha256: {}: expected success of OpenSSL, got a failure", step));
}

}  // namespace

void sha256::context_deleter::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}

sha256::sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "start");
}

void sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "update");
}

std::string sha256::hex() const {
  // Finishing ends a context, so a copy is finished.
  const sha256 copy;
  std::array<unsigned char, 32> digest{};
  require(EVP_MD_CTX_copy_ex(copy.context_.get(), context_.get()) == 1 &&
              EVP_DigestFinal_ex(copy.context_.get(), digest.data(), nullptr) == 1,
          "finish");
  std::string text;
  for (const unsigned char byte : digest)
    text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace stash::runtime
