// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/gpu/measure.hpp"
#include "bench/gpu/network_maps.hpp"
#include "bench/gpu/records.hpp"
#include "gpu/emulated_baselines.hpp"
#include "simt/simt.hpp"

namespace stash::gpu {
namespace {

row example() {
  row r;
  r.name = "encode/bitmap/f32/iid_0.5/1MiB";
  r.dense_bytes = 1 << 20;
  r.moved_bytes = 3 << 19;
  r.encoded_bytes = 1 << 19;
  r.time = sample_of({2e-6, 4e-6, 3e-6});
  r.driver_copy = sample_of({2.4e-6, 9e-6, 1e-6});
  r.kernel_copy = sample_of({1.5e-6, 1.5e-6, 1.5e-6});
  return r;
}

TEST(gpu_rows, sample_is_median_and_range) {
  const sample s = sample_of({5, 1, 3});
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.least, 1);
  EXPECT_EQ(s.most, 5);
  EXPECT_EQ(s.repetitions, 3);
  EXPECT_EQ(sample_of({2, 1}).median, 2);
  EXPECT_THROW(sample_of({}), std::invalid_argument);
}

TEST(gpu_rows, share_is_that_of_the_faster_copy) {
  const row r = example();
  EXPECT_DOUBLE_EQ(r.copy_share(), 0.5);
  EXPECT_DOUBLE_EQ(r.ratio(), 2);
  EXPECT_DOUBLE_EQ(r.dense_bytes_per_second(), (1 << 20) / 3e-6);
  EXPECT_DOUBLE_EQ(r.moved_bytes_per_second(), (3 << 19) / 3e-6);
  EXPECT_EQ(row{}.copy_share(), 0);
  EXPECT_EQ(row{}.ratio(), 0);
}

TEST(gpu_rows, table_has_a_line_for_each_row) {
  row skipped;
  skipped.name = "decode/csr";
  skipped.why_not_run = "no CUDA device";
  EXPECT_EQ(line_of(skipped).substr(58), " not run: no CUDA device");
  EXPECT_NE(line_of(example()).find(" 0.500 "), std::string::npos);
  EXPECT_NE(line_of(example()).find(" 2.00"), std::string::npos);
  row without = example();
  without.driver_copy = without.kernel_copy = {};
  EXPECT_EQ(line_of(without).find(" 0.500 "), std::string::npos);
}

TEST(gpu_rows, json_says_what_was_not_run) {
  row skipped;
  skipped.name = "decode/csr";
  skipped.why_not_run = "no CUDA device";
  const nlohmann::ordered_json list = json_of(std::vector<row>{example(), skipped});
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["copy_share"], 0.5);
  EXPECT_EQ(list[0]["seconds"]["median"], 3e-6);
  EXPECT_EQ(list[0]["seconds"]["repetitions"], 3);
  EXPECT_EQ(list[0]["encoded_bytes"], 1 << 19);
  EXPECT_EQ(list[1]["result"], "not run");
  EXPECT_EQ(list[1]["why"], "no CUDA device");
  EXPECT_FALSE(list[1].contains("seconds"));
}

TEST(gpu_records, tell_where_they_come_from) {
  const nlohmann::ordered_json record = record_start("stash.gpu_bench", "gpu_bench");
  EXPECT_EQ(record["format"], "stash.gpu_bench");
  EXPECT_TRUE(record.contains("commit"));
  EXPECT_TRUE(record.contains("compiler"));
}

TEST(gpu_records, are_files_or_errors) {
  const std::string path = testing::TempDir() + "stash_gpu_record.json";
  write_json(path, {{"name", "\xff not UTF-8"}});
  std::ifstream in(path);
  EXPECT_TRUE(nlohmann::json::parse(in).contains("name"));
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  EXPECT_THROW(write_json("/no/such/folder/x.json", {}), std::runtime_error);
  EXPECT_THROW(write_json(testing::TempDir(), {}), std::runtime_error);
}

TEST(gpu_records, say_whether_they_are_complete) {
  const std::string path = testing::TempDir() + "stash_gpu_results.json";
  const auto read = [&] {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
  };
  write_results(path, {{"format", "f"}}, "rows", nlohmann::ordered_json::array({1}), "decode/csr");
  EXPECT_EQ(read(), nlohmann::json::parse(
                        R"({"format": "f", "complete": false, "running": "decode/csr", "rows": [1]})"));
  write_results(path, {{"format", "f"}}, "rows", nlohmann::ordered_json::array({1, 2}), "");
  EXPECT_EQ(read(), nlohmann::json::parse(R"({"format": "f", "complete": true, "rows": [1, 2]})"));
  EXPECT_NO_THROW(write_results("", {}, "rows", {}, ""));
}

TEST(gpu_records, tell_the_device) {
  const nlohmann::ordered_json facts_of_it = json_of(facts());
  EXPECT_EQ(facts_of_it["name"], "emulator");
  EXPECT_EQ(facts_of_it["built_for"], "the host");
  EXPECT_NE(text_of(facts()).find("built for the host"), std::string::npos);
}

TEST(gpu_lines, names_are_unique_and_types_fit) {
  for (const selection s : {selection::smoke, selection::quick, selection::usual, selection::all}) {
    std::set<std::string> names;
    for (const line& l : lines_of(s, stash_cases())) {
      EXPECT_TRUE(names.insert(l.name()).second) << l.name();
      EXPECT_TRUE(l.what.takes(l.form.type));
    }
    EXPECT_TRUE(names.contains(s == selection::smoke ? "encode/bitmap/f16/iid_0.5/64KiB"
                                                     : "encode/bitmap/f16/iid_0.5/256MiB"));
    // No cast of 16 bits to 16.
    EXPECT_FALSE(names.contains("encode/fp16/f16/iid_0.5/64KiB"));
    EXPECT_EQ(names.contains("encode/bitmap/bf16/clustered_0.5/1GiB"),
              s == selection::usual || s == selection::all);
    EXPECT_EQ(names.contains("encode/bitmap/f32/iid_0.6/256MiB"), s != selection::smoke);
    EXPECT_EQ(names.contains("decode/bitmap/f16/iid_0.2/256MiB"), s != selection::smoke);
    EXPECT_EQ(names.contains("encode/csr/f32/iid_0.6/256MiB"), s != selection::smoke);
    EXPECT_FALSE(names.contains("encode/fp8/f32/iid_0.6/256MiB"));
    // Cases with sizes of their own are measured at those.
    EXPECT_EQ(names.contains("encode_batch_of_32/bitmap/f32/iid_0.5/8MiB"), s != selection::smoke);
    EXPECT_FALSE(names.contains("encode_batch_of_32/bitmap/f32/iid_0.5/256MiB"));
  }
}

TEST(gpu_network_maps, resnet50_keeps_each_map_as_its_readers_need_it) {
  const std::vector<kept_form> forms = resnet50_forms(32, 224);
  std::map<std::string, int> forms_of_kind;
  std::int64_t before_norms = 0;
  for (const kept_form& f : forms) {
    ++forms_of_kind[to_string(f.how)];
    if (f.how.kind == encoding_kind::cast && f.node != "pool1" && f.node != "flatten")
      before_norms += f.elements();
  }
  // 53 convolutions with norms, the pooled map and the classifier's input; 49 ReLUs, of which the first is
  // pooled and the last averaged.
  const std::map<std::string, int> expected{
      {"bitmap", 47}, {"fp8", 55}, {"sign_mask", 2}, {"window_index", 1}};
  EXPECT_EQ(forms_of_kind, expected);
  // The convolutions of an image of 224 x 224 make 11.1 million values, as is published.
  EXPECT_NEAR(static_cast<double>(before_norms) / 32, 11.1e6, 0.05e6);
  const auto index =
      std::find_if(forms.begin(), forms.end(), [](const kept_form& f) { return f.is_index(); });
  ASSERT_NE(index, forms.end());
  EXPECT_EQ(index->dims, (shape{32, 112, 112, 64}));
  EXPECT_EQ(index->pooled, (shape{32, 56, 56, 64}));
  EXPECT_EQ(index->elements(), index->pooled.elements());
}

/// What a GPU's memory would do to a host that follows a device pointer, the emulated one does.
TEST(gpu_emulated_device, memory_is_closed_to_the_host) {
  const memory m(16);
  EXPECT_DEATH(*m.bytes() = 1, "");
  fill(m.data(), 7, 16, nullptr);
  EXPECT_DEATH(*m.bytes() = 1, "");
  std::uint8_t byte = 0;
  download(&byte, m.data(), 1);
  EXPECT_EQ(byte, 7);
}

/// What targets compare sparse forms with has rows on the same maps.
TEST(gpu_lines, baselines_of_sparse_forms_are_measured_at_their_densities) {
  const auto none = [](const map_form&, map_source&) { return prepared_case{}; };
  for (const char* name : {"baseline/cub_select", "baseline/cusparse_dense_to_csr"}) {
    for (const selection s : {selection::quick, selection::usual, selection::all}) {
      std::set<std::string> names;
      for (const line& l : lines_of(s, {{name, takes_floats, none}}))
        EXPECT_TRUE(names.insert(l.name()).second) << l.name();
      for (const char* density : {"0.2", "0.5", "0.6"})
        EXPECT_TRUE(names.contains(std::string(name) + "/f16/iid_" + density + "/256MiB")) << density;
    }
  }
}

// With the emulated device: the cases prepare, run and verify. Its times mean nothing.
TEST(gpu_measure, every_line_runs_or_is_not_offered) {
  measurer measure({0, 1, 1});
  map_source maps;
  std::set<std::string> names;
  for (const line& l : lines_of(selection::smoke, stash_cases())) {
    const row r = measure.measure(l, maps);
    SCOPED_TRACE(r.name);
    names.insert(r.name);
    EXPECT_EQ(r.why_not_run, "");
    if (!r.why_not_run.empty()) continue;
    if (l.what.own_elements.empty()) {
      EXPECT_EQ(r.dense_bytes, 65536U);
    } else {
      EXPECT_NEAR(static_cast<double>(r.dense_bytes), static_cast<double>(l.form.bytes), 131072);
    }
    EXPECT_EQ(r.time.repetitions, 1);
    EXPECT_EQ(r.driver_copy.repetitions, 1);
    EXPECT_GT(r.moved_bytes, r.dense_bytes);
    if (r.name.starts_with("encode/bitmap/f32")) {
      // Half of 16,384 values, a bit for each, a word for each of 16 tiles, and padding.
      EXPECT_NEAR(static_cast<double>(r.encoded_bytes), 8192 * 4 + 2048 + 64, 600);
      EXPECT_EQ(r.moved_bytes, r.dense_bytes + r.encoded_bytes);
    }
  }
  EXPECT_TRUE(names.contains("relu_backward/csr_fp8/bf16/iid_0.5/64KiB"));
  for (const std::string kind : {"f32", "f16", "bf16"}) {
    for (const char* name : {"canonicalise/bitmap", "canonicalise/csr", "csr_export32/csr"})
      EXPECT_TRUE(names.contains(name + ("/" + kind) + "/iid_0.5/64KiB")) << name;
    for (const char* layout : {"", "_channels_first"}) {
      for (const char* name : {"max_pool_forward/no_stash_3d", "max_pool_forward/window_index_3d",
                               "max_pool_backward/window_index_3d", "max_pool_backward/x_3d"})
        EXPECT_TRUE(names.contains(name + (layout + ("/" + kind)) + "/iid_0.5/64KiB")) << name;
    }
  }
}

prepared_case prepared(const std::string& name, const map_form& form) {
  const std::vector<measured_case> cases = stash_cases();
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const measured_case& c) { return c.name == name; });
  if (found == cases.end()) throw std::invalid_argument(name);
  map_source maps;
  return found->prepare(form, maps);
}

constexpr map_form half_zeros(dtype type) {
  return {type, {bench::zero_pattern::independent, 0.5}, 65536};
}

/// Of a map before its ReLU the values above zero stay, and no others.
std::uint64_t nonzeros_of(const map_form& form) {
  std::vector<float> values(static_cast<std::size_t>(form.elements()));
  bench::fill_before_relu(values, form.zeros, 64);
  return static_cast<std::uint64_t>(
      std::count_if(values.begin(), values.end(), [](float v) { return v > 0; }));
}

/// Each byte is read or written once, whatever the kernels do.
TEST(gpu_measure, canonical_form_moves_what_it_reads_and_writes) {
  for (const dtype type : {dtype::f32, dtype::f16}) {
    for (const std::string form : {"bitmap", "csr"}) {
      const prepared_case work = prepared("canonicalise/" + form, half_zeros(type));
      const prepared_case encoder = prepared("encode/" + form, half_zeros(type));
      EXPECT_EQ(work.encoded_bytes, encoder.encoded_bytes);
      EXPECT_EQ(work.moved_bytes, 2 * encoder.encoded_bytes);
      EXPECT_EQ(work.dense_bytes, 65536U);
    }
  }
}

TEST(gpu_measure, csr_export_moves_csr_and_its_three_arrays) {
  for (const dtype type : {dtype::f32, dtype::f16}) {
    const map_form form = half_zeros(type);
    const prepared_case work = prepared("csr_export32/csr", form);
    const std::uint64_t rows = static_cast<std::uint64_t>(form.elements()) / 256;
    EXPECT_EQ(work.encoded_bytes, prepared("encode/csr", form).encoded_bytes);
    EXPECT_EQ(work.moved_bytes,
              work.encoded_bytes + (rows + 1) * 4 + nonzeros_of(form) * (4 + size_of(type)));
  }
}

/// What was not written must not pass for what was measured.
TEST(gpu_measure, results_are_looked_at_after_the_row) {
  for (const char* name : {"canonicalise/bitmap", "canonicalise/csr", "csr_export32/csr"}) {
    const prepared_case work = prepared(name, half_zeros(dtype::f32));
    work.before(nullptr);
    EXPECT_THROW(work.verify(), failure) << name;
    work.run(nullptr);
    EXPECT_NO_THROW(work.verify()) << name;
  }
}

/// By two each way: an eighth of the values, and four bits for each.
TEST(gpu_measure, volumes_are_pooled_in_three_dimensions) {
  for (const char* layout : {"", "_channels_first"}) {
    const prepared_case way =
        prepared(std::string("max_pool_forward/window_index_3d") + layout, half_zeros(dtype::f32));
    EXPECT_EQ(way.encoded_bytes, 16384U / 8 / 2);
    EXPECT_EQ(way.moved_bytes, 65536U + 65536 / 8 + 1024);
    const prepared_case back =
        prepared(std::string("max_pool_backward/window_index_3d") + layout, half_zeros(dtype::f32));
    EXPECT_EQ(back.moved_bytes, way.moved_bytes);
    const prepared_case dense =
        prepared(std::string("max_pool_backward/x_3d") + layout, half_zeros(dtype::f32));
    EXPECT_EQ(dense.moved_bytes, 2 * 65536U + 65536 / 8);
  }
}

/// A sequence that left a call out would be too fast and tell nobody.
TEST(gpu_measure, sequence_runs_every_call) {
  const measured_case step = sequence_cases().front();
  const map_form form{dtype::f32, {bench::zero_pattern::independent, 0.5}, step.own_elements.front() * 4};
  map_source maps;
  const prepared_case work = step.prepare(form, maps);
  const std::vector<kept_form> forms = resnet50_forms(1, 32);
  const std::size_t before = simt::launches_so_far();
  work.run(nullptr);
  EXPECT_GE(simt::launches_so_far() - before, 2 * forms.size());
  EXPECT_EQ(work.dense_bytes, static_cast<std::uint64_t>(elements_of(forms)) * 4);
  EXPECT_GT(work.moved_bytes, 2 * (work.dense_bytes + work.encoded_bytes));
}

TEST(gpu_measure, nothing_is_left_to_write_back_before_the_clock_starts) {
  measurer measure({0, 1, 1});
  map_source maps;
  std::vector<std::uint64_t> read;
  const auto prepare = [&](const map_form&, map_source&) -> prepared_case {
    return {[&](void*) { read.push_back(bytes_read_by_kernel()); }, [](void*) {}, [] {}, 65536, 0, 65536};
  };
  read.push_back(bytes_read_by_kernel());
  measure.measure({{"x", takes_floats, prepare, false}, {dtype::f32, {}, 65536}}, maps);
  ASSERT_GE(read.size(), 2U);
  for (std::size_t k = 1; k < read.size(); ++k)
    EXPECT_GE(read[k] - read[k - 1], 2 * facts().l2_bytes);
}

TEST(gpu_measure, what_is_wrong_is_not_run) {
  measurer measure({0, 1, 1});
  map_source maps;
  const auto wrong = [](const map_form&, map_source&) -> prepared_case { throw failure("no such library"); };
  const row r = measure.measure({{"baseline/x", takes_floats, wrong}, {dtype::f32, {}, 65536}}, maps);
  EXPECT_EQ(r.why_not_run, "no such library");
  const auto bad = [](const map_form&, map_source&) -> prepared_case {
    return {[](void*) {}, [](void*) {}, [] { throw failure("status 2"); }, 65536, 0, 65536};
  };
  EXPECT_EQ(measure.measure({{"x", takes_floats, bad}, {dtype::f32, {}, 65536}}, maps).why_not_run,
            "status 2");
}

TEST(gpu_maps, repeat_what_bench_cases_generate) {
  map_source maps;
  const map_form form{dtype::f32, {bench::zero_pattern::clustered, 0.5}, 65536};
  std::vector<float> expected(16384), found(16384);
  bench::fill_before_relu(expected, form.zeros, 64);
  download(found.data(), maps.before_relu(form)->data(), 65536);
  EXPECT_EQ(found, expected);
  // 40 MiB: the first part and a quarter of it again.
  const shared_map large = maps.after_relu({dtype::bf16, {}, 40 << 20});
  std::vector<std::uint8_t> bytes(40 << 20);
  download(bytes.data(), large->data(), bytes.size());
  EXPECT_TRUE(std::equal(bytes.begin() + (32 << 20), bytes.end(), bytes.begin()));
  EXPECT_EQ(large->view().dims.elements(), 20 << 20);
}

}  // namespace
}  // namespace stash::gpu
