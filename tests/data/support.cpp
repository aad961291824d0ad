// SPDX-License-Identifier: Apache-2.0
#include "data/support.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace stash::data::test {

void append_u32(bytes& to, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0})
    to.push_back(static_cast<std::uint8_t>(value >> shift));
}

bytes idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  bytes file;
  for (const std::uint32_t field : {0x803U, count, height, width})
    append_u32(file, field);
  for (std::uint32_t i = 0; i < count * height * width; ++i)
    file.push_back(static_cast<std::uint8_t>(i % 251));
  return file;
}

bytes idx_labels(std::uint32_t count) {
  bytes file;
  append_u32(file, 0x801);
  append_u32(file, count);
  for (std::uint32_t i = 0; i < count; ++i)
    file.push_back(static_cast<std::uint8_t>(i % 10));
  return file;
}

bytes cifar_records(std::size_t count, std::size_t first) {
  bytes file;
  for (std::size_t i = 0; i < count; ++i) {
    file.push_back(static_cast<std::uint8_t>((first + i) % 10));
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < 1024; ++p)
        file.push_back(static_cast<std::uint8_t>(p * 3 + c * 7 + i));
    }
  }
  return file;
}

bytes gz(const bytes& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  bytes packed(deflateBound(&stream, content.size()));
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return packed;
}

void expect_error(errc code, const std::string& fragment, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one with '" << fragment << "'";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(fragment), std::string::npos)
        << "'" << fragment << "' in: " << e.what();
  }
}

temporary_folder::temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "stash-data-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string temporary_folder::path(const std::string& name) const {
  return name.empty() ? path_ : path_ + "/" + name;
}

std::string temporary_folder::write(const std::string& name, const bytes& content) const {
  const std::filesystem::path file(path(name));
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
  return file.string();
}

}  // namespace stash::data::test
