// SPDX-License-Identifier: Apache-2.0
// The committed tensors and bytes of tests/format/golden: the library and the reference of docs/format.md
// agree with the files, and bytes that break a rule of that page behave as it says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "format/golden_files.hpp"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/error.hpp"
#include "stash/pool.hpp"
#include "support/format_names.hpp"

namespace stash::golden {
namespace {

const std::filesystem::path folder = STASH_GOLDEN_FOLDER;

/// Memory aligned as encoded bytes are.
struct memory {
  explicit memory(std::size_t size) : blocks((size + 15) / 16 + 1), bytes(size) {}
  explicit memory(const std::vector<std::uint8_t>& content) : memory(content.size()) {
    std::copy(content.begin(), content.end(), data());
  }
  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(blocks.data()); }
  std::vector<std::uint8_t> content() { return {data(), data() + bytes}; }

  struct alignas(16) block {
    std::uint8_t bytes[16];
  };
  std::vector<block> blocks;
  std::size_t bytes;
};

/// A dense tensor in memory.
struct tensor_memory {
  memory bytes;
  dtype type;
  shape dims;

  tensor_memory(dtype element, const shape& extents)
      : bytes(static_cast<std::size_t>(extents.elements()) * size_of(element)), type(element), dims(extents) {
    std::memset(bytes.data(), 0xa5, bytes.bytes);
  }
  tensor_memory(dtype element, const shape& extents, const std::vector<std::uint32_t>& bits)
      : tensor_memory(element, extents) {
    for (std::size_t i = 0; i < bits.size(); ++i)
      std::memcpy(bytes.data() + i * size_of(element), &bits[i], size_of(element));
  }
  tensor_view view() { return {bytes.data(), type, memory_space::host, dims}; }
  std::vector<std::uint32_t> bits() {
    std::vector<std::uint32_t> all(static_cast<std::size_t>(dims.elements()));
    for (std::size_t i = 0; i < all.size(); ++i)
      std::memcpy(&all[i], bytes.data() + i * size_of(type), size_of(type));
    return all;
  }
};

std::vector<std::uint32_t> words_at(const json& test_case, const char* key) {
  return words(test_case.at(key).get<std::string>());
}

bool is_mask(const encoding& e) {
  return e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
}

/// Runs body(case) for every case of a file and instruction set, in a trace that names them.
template <class Body>
void for_each_case(const std::filesystem::path& path, const Body& body) {
  const json file = read_file(path);
  ASSERT_FALSE(file.at("cases").empty()) << path;
  for (const std::string& target : cpu_targets()) {
    set_cpu_target(target);
    for (const json& test_case : file.at("cases")) {
      SCOPED_TRACE(path.filename().string() + ": " + test_case.at("name").get<std::string>() + ", " + target);
      body(file, test_case);
    }
  }
}

TEST(golden, every_encoding_has_a_file_with_an_explained_case) {
  const std::vector<std::string> names =
      stash_test::names_of_all_values({"raw", "shape_only", "sign_mask", "range_mask", "bitmap", "csr"});
  for (const std::string& name : names) {
    const json file = read_file(folder / (name + ".json"));
    EXPECT_EQ(file.at("encoding"), name);
    EXPECT_TRUE(file.at("cases").at(0).contains("parts")) << name;
  }
  EXPECT_EQ(files_in(folder).size(), names.size());
}

TEST(golden, library_and_reference_write_these_bytes) {
  for (const std::filesystem::path& path : files_in(folder)) {
    for_each_case(path, [](const json& file, const json& test_case) {
      const auto name = file.at("encoding").get<std::string>();
      const encoding e = encoding_of(name, test_case);
      EXPECT_EQ(to_string(e), name);
      const reference::tensor t = tensor_of(test_case);
      const std::vector<std::uint8_t> expected = bytes_of(test_case);
      EXPECT_EQ(text_of_bytes(reference::encode(e, t).bytes), text_of_bytes(expected));

      tensor_memory input(t.type, {t.count()}, t.bits);
      ASSERT_EQ(encoded_bytes_exact(e, input.view(), {}), expected.size());
      memory stored(expected.size());
      encode_report report;
      encode(e, input.view(), {stored.data(), stored.bytes, nullptr, &report}, {}, {});
      EXPECT_EQ(report.status, status_ok);
      EXPECT_EQ(text_of_bytes(stored.content()), text_of_bytes(expected));
    });
  }
}

TEST(golden, library_reads_these_values_from_the_bytes) {
  for (const std::filesystem::path& path : files_in(folder)) {
    for_each_case(path, [](const json& file, const json& test_case) {
      const encoding e = encoding_of(file.at("encoding").get<std::string>(), test_case);
      if (e.kind == encoding_kind::shape_only) return;  // has no dense form
      memory stored(bytes_of(test_case));
      const dtype type = is_mask(e) ? dtype::u8 : type_of(test_case);
      tensor_memory output(type, {tensor_of(test_case).count()});
      encode_report report;
      decode({e, output.view().type, output.view().dims, {stored.data(), stored.bytes, nullptr, &report}},
             output.view(), {}, {});
      EXPECT_EQ(report.status, status_ok);
      EXPECT_EQ(text_of_words(output.bits(), type), text_of_words(words_at(test_case, "decoded"), type));
    });
  }
}

/// One map of one channel and what is made of it.
struct pooling {
  pool_window window;
  shape x, y;

  explicit pooling(const json& test_case) {
    const auto kernel = test_case.at("kernel").get<std::int32_t>();
    const auto pad = test_case.value("pad", 0);
    const auto h = test_case.at("h").get<std::int64_t>(), w = test_case.at("w").get<std::int64_t>();
    window.kernel_h = window.kernel_w = window.stride_h = window.stride_w = kernel;
    window.pad_top = window.pad_left = pad;
    x = {1, h, w, 1};
    y = {1, (h + pad) / kernel, (w + pad) / kernel, 1};
  }
};

TEST(golden, pooling_layers_write_and_read_these_codes) {
  for (const char* name : {"window_index", "relu_pool"}) {
    const bool joint = std::string(name) == "relu_pool";
    for_each_case(folder / "layers" / (std::string(name) + ".json"), [&](const json&, const json& test_case) {
      const pooling p(test_case);
      const framework_rule rule = encoding_of(name, test_case).rule;
      tensor_memory x(dtype::f32, p.x, words_at(test_case, "values")), y(dtype::f32, p.y),
          dx(dtype::f32, p.x);
      const std::vector<std::uint8_t> expected = bytes_of(test_case);
      memory stored(expected.size());
      encode_report report;
      const encoded_view out{stored.data(), stored.bytes, nullptr, &report};
      if (joint) {
        relu_max_pool_forward(x.view(), y.view(), p.window, out, {}, rule, {});
      } else {
        max_pool_forward(x.view(), y.view(), p.window, out, rule, {});
      }
      EXPECT_EQ(text_of_bytes(stored.content()), text_of_bytes(expected));
      EXPECT_EQ(text_of_words(y.bits(), dtype::f32), text_of_words(words_at(test_case, "y"), dtype::f32));

      tensor_memory dy(dtype::f32, p.y, std::vector<std::uint32_t>(y.bits().size(), 0x3f800000));
      const const_encoded_view in{stored.data(), stored.bytes, nullptr, &report};
      if (joint) {
        relu_max_pool_backward(dy.view(), {relu_pool_of(p.window), dy.view().type, dy.view().dims, in},
                               dx.view(), p.window, {});
      } else {
        max_pool_backward(dy.view(), {window_index_of(p.window), dy.view().type, dy.view().dims, in},
                          dx.view(), p.window, {});
      }
      EXPECT_EQ(report.status, status_ok);
      EXPECT_EQ(text_of_words(dx.bits(), dtype::f32), text_of_words(words_at(test_case, "dx"), dtype::f32));
    });
  }
}

TEST(golden, dropout_makes_these_decisions) {
  const auto number = [](const json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); };
  for_each_case(folder / "layers" / "dropout.json", [&](const json&, const json& test_case) {
    const auto count = test_case.at("elements").get<std::int64_t>();
    tensor_memory x(dtype::f32, {count},
                    std::vector<std::uint32_t>(static_cast<std::size_t>(count), 0x3f800000));
    tensor_memory y(dtype::f32, {count}), dx(dtype::f32, {count});
    const std::vector<std::uint8_t> expected = bytes_of(test_case);
    memory mask(expected.size());
    encode_report report;
    const auto probability = test_case.at("probability").get<float>();
    dropout_forward(x.view(), y.view(), {mask.data(), mask.bytes, nullptr, &report}, probability,
                    {number(test_case.at("seed")), number(test_case.at("step")),
                     test_case.at("layer").get<std::uint32_t>()},
                    {});
    EXPECT_EQ(text_of_bytes(mask.content()), text_of_bytes(expected));
    const std::string scaled = text_of_words(words_at(test_case, "y"), dtype::f32);
    EXPECT_EQ(text_of_words(y.bits(), dtype::f32), scaled);
    dropout_backward(x.view(),
                     {{.kind = encoding_kind::sign_mask},
                      x.view().type,
                      x.view().dims,
                      {mask.data(), mask.bytes, nullptr, &report}},
                     dx.view(), probability, {});
    EXPECT_EQ(text_of_words(dx.bits(), dtype::f32), scaled);
  });
}

TEST(golden, tiles_overflow_to_these_places) {
  for_each_case(folder / "places" / "overflow.json", [](const json&, const json& test_case) {
    const encoding e = encoding_of(test_case.at("encoding").get<std::string>(), test_case);
    const reference::tensor t = tensor_of(test_case);
    // The memory before and after, as text; of the slot only the bytes in use are compared.
    reference::stored before;
    const auto region_of = [&](const char* name) -> std::optional<reference::region> {
      if (!test_case.contains(name)) return std::nullopt;
      return reference::region{bytes(test_case.at(name).at("before").get<std::string>()),
                               test_case.at(name).at("claimed").at(0).get<std::uint64_t>()};
    };
    before.slot.assign(test_case.at("slot_bytes").get<std::size_t>(), 0xcd);
    before.arena = region_of("arena");
    before.host = region_of("host");
    reference::stored by_reference = reference::place(e, t, before);

    memory slot(before.slot), arena_memory(before.arena ? before.arena->bytes : std::vector<std::uint8_t>{}),
        host(before.host ? before.host->bytes : std::vector<std::uint8_t>{});
    reference::stored found = before;
    const overflow_arena regions{
        arena_memory.data(), arena_memory.bytes, found.arena ? &found.arena->claimed : nullptr,
        host.data(),         host.bytes,         found.host ? &found.host->claimed : nullptr};
    tensor_memory input(t.type, {t.count()}, t.bits);
    encode_report report;
    encode(e, input.view(), {slot.data(), slot.bytes, &regions, &report}, {}, {});
    found.slot = slot.content();
    if (found.arena) found.arena->bytes = arena_memory.content();
    if (found.host) found.host->bytes = host.content();
    found.status = report.status;
    found.slot_bytes = report.slot_bytes;
    found.overflow_bytes = report.overflow_bytes;
    for (reference::stored* stored : {&by_reference, &found}) {
      stored->slot.resize(stored->slot_bytes);
      EXPECT_EQ(text_of_bytes(stored->slot), text_of_bytes(bytes_of(test_case)));
      for (const auto& [name, region] :
           {std::pair("arena", stored->arena), std::pair("host", stored->host)}) {
        if (!region) continue;
        const json& expected = test_case.at(name);
        EXPECT_EQ(text_of_bytes(region->bytes),
                  text_of_bytes(bytes(expected.at("after").get<std::string>())));
        EXPECT_EQ(region->claimed, expected.at("claimed").at(1).get<std::uint64_t>());
      }
      EXPECT_EQ(stored->status, test_case.value("lost", false) ? status_capacity : status_ok);
      EXPECT_EQ(stored->overflow_bytes, test_case.at("overflow_bytes").get<std::uint64_t>());
    }
  });
}

// --- bytes that break a rule
// -----------------------------------------------------------------------------------------

/// Runs the call and compares what it throws or reports with the case; true if it returned.
template <class Call>
bool behaves_as_documented(const json& test_case, const encode_report& report, const Call& call) {
  std::string thrown = "none", expected = test_case.value("error", "none");
  try {
    call();
  } catch (const error& e) {
    thrown = to_string(e.code());
  }
  EXPECT_EQ(thrown, expected);
  if (thrown != "none" || expected != "none") return false;
  std::uint32_t status = status_ok;
  for (const json& bit : test_case.at("status"))
    status |= bit == "corrupt" ? status_corrupt : bit == "capacity" ? status_capacity : ~0U;
  EXPECT_EQ(report.status, status);
  return true;
}

TEST(golden_bad, decoding_is_as_documented) {
  for_each_case(folder / "bad" / "decode.json", [](const json&, const json& test_case) {
    const encoding e = encoding_of(test_case.at("encoding").get<std::string>(), test_case);
    memory stored(bytes_of(test_case)), arena_memory(bytes(test_case.value("arena", ""))),
        host(bytes(test_case.value("host", "")));
    std::uint64_t claimed = 0;
    const bool with_arena = test_case.contains("arena"), with_host = test_case.contains("host");
    const overflow_arena arena{arena_memory.data(), arena_memory.bytes, with_arena ? &claimed : nullptr,
                               host.data(),         host.bytes,         with_host ? &claimed : nullptr};
    const dtype type = is_mask(e) ? dtype::u8 : type_of(test_case);
    tensor_memory output(type, {test_case.at("elements").get<std::int64_t>()});
    encode_report report;
    const const_encoded_view input{stored.data(), stored.bytes, with_arena || with_host ? &arena : nullptr,
                                   &report};
    const bool returned = behaves_as_documented(test_case, report, [&] {
      decode({e, output.view().type, output.view().dims, input}, output.view(), {}, {});
    });
    if (returned && test_case.contains("decoded")) {
      EXPECT_EQ(text_of_words(output.bits(), type), text_of_words(words_at(test_case, "decoded"), type));
    }
  });
}

TEST(golden_bad, export_is_as_documented) {
  for_each_case(folder / "bad" / "export.json", [](const json&, const json& test_case) {
    const encoding e = encoding_of(test_case.at("encoding").get<std::string>(), test_case);
    const auto elements = test_case.at("elements").get<std::int64_t>();
    memory stored(bytes_of(test_case));
    std::vector<std::uint32_t> offsets(static_cast<std::size_t>(elements) / 256 + 2),
        columns(static_cast<std::size_t>(elements));
    tensor_memory values(dtype::f32, {elements});
    encode_report report;
    std::int64_t count = 0;
    const bool returned = behaves_as_documented(test_case, report, [&] {
      count = csr_export32({e, dtype::f32, {elements}, {stored.data(), stored.bytes, nullptr, &report}},
                           {offsets.data(), columns.data(), values.bytes.data(), dtype::f32, elements}, {});
    });
    if (!returned) return;
    std::vector<std::uint32_t> written = values.bits();
    written.resize(static_cast<std::size_t>(count));
    EXPECT_EQ(text_of_words(written, dtype::f32), text_of_words(words_at(test_case, "decoded"), dtype::f32));
  });
}

TEST(golden_bad, pooling_codes_are_dropped_as_documented) {
  for_each_case(folder / "bad" / "pool.json", [](const json&, const json& test_case) {
    const pooling p(test_case);
    memory stored(bytes_of(test_case));
    tensor_memory dx(dtype::f32, p.x);
    tensor_memory dy(dtype::f32, p.y,
                     std::vector<std::uint32_t>(static_cast<std::size_t>(p.y.elements()), 0x3f800000));
    encode_report report;
    const const_encoded_view code{stored.data(), stored.bytes, nullptr, &report};
    const bool returned = behaves_as_documented(test_case, report, [&] {
      if (test_case.at("encoding") == "relu_pool") {
        relu_max_pool_backward(dy.view(), {relu_pool_of(p.window), dy.view().type, dy.view().dims, code},
                               dx.view(), p.window, {});
      } else {
        max_pool_backward(dy.view(), {window_index_of(p.window), dy.view().type, dy.view().dims, code},
                          dx.view(), p.window, {});
      }
    });
    if (returned) {
      EXPECT_EQ(text_of_words(dx.bits(), dtype::f32), text_of_words(words_at(test_case, "dx"), dtype::f32));
    }
  });
}

}  // namespace
}  // namespace stash::golden
