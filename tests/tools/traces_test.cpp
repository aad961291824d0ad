// SPDX-License-Identifier: Apache-2.0
// Packed files, and what the shared traces of real networks become: skipped where these are not there (next
// to the folder that STASH_DATA names).

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "files/packed_file.hpp"
#include "planner/graph/repeat_graph.hpp"
#include "planner/plan.hpp"
#include "planner/trace/trace.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("stash_traces_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }

  /// An archive of these files; raw: the first one's content only.
  std::string pack(const std::string& name, bool gz, bool tar,
                   const std::vector<std::pair<std::string, std::string>>& content) const {
    archive* const a = archive_write_new();
    if (gz) archive_write_add_filter_gzip(a);
    tar ? archive_write_set_format_pax_restricted(a) : archive_write_set_format_raw(a);
    archive_write_open_filename(a, (folder_ / name).c_str());
    for (const auto& [path, text] : content) {
      archive_entry* const e = archive_entry_new();
      archive_entry_set_pathname(e, path.c_str());
      archive_entry_set_size(e, static_cast<la_int64_t>(text.size()));
      archive_entry_set_filetype(e, path.ends_with('/') ? AE_IFDIR : AE_IFREG);
      archive_entry_set_perm(e, 0644);
      archive_write_header(a, e);
      archive_write_data(a, text.data(), text.size());
      archive_entry_free(e);
    }
    archive_write_close(a);
    archive_write_free(a);
    return (folder_ / name).string();
  }

  static void expect_refused(errc code, const std::string& says, const std::string& path,
                             std::size_t limit = most_unpacked_bytes) {
    try {
      read_packed_file(path, limit);
      ADD_FAILURE() << path;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(path));
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  }

  std::filesystem::path folder_;
};

TEST_F(files, plain_gz_and_tar_give_the_content) {
  const std::string text(100000, 'x');
  EXPECT_EQ(read_packed_file(write("a.json", text)), text);
  EXPECT_EQ(read_packed_file(pack("a.json.gz", true, false, {{"a", text}})), text);
  EXPECT_EQ(read_packed_file(pack("a.tar", false, true, {{"a.json", text}})), text);
  EXPECT_EQ(read_packed_file(
                pack("a.tar.gz", true, true,
                     {{"d.json/", ""}, {"readme.txt", "no"}, {"d/b.json", text}, {"c.json", "second"}})),
            text);
}

TEST_F(files, what_macos_adds_to_an_archive_is_passed_over) {
  const std::string attributes("\0\x05\x16\x07\0\x02\0\0Mac OS X", 16), text = "{}";
  for (const bool gz : {false, true}) {
    EXPECT_EQ(read_packed_file(pack("mac.tar", gz, true, {{"._t.json", attributes}, {"t.json", text}})),
              text);
    EXPECT_EQ(read_packed_file(pack("mac.tar", gz, true,
                                    {{"./._run", attributes},
                                     {"./run/", ""},
                                     {"./run/._t.json", attributes},
                                     {"./run/t.json", text}})),
              text);
    EXPECT_EQ(read_packed_file(pack("mac.tar", gz, true,
                                    {{"__MACOSX/", ""},
                                     {"__MACOSX/run/t.json", attributes},
                                     {"run/__MACOSX/t.json", attributes},
                                     {"run/t.json", text}})),
              text);
  }
  // Names that only look like that.
  for (const char* const name : {"a._t.json", "._run/t.json", "not__MACOSX/t.json", "__MACOSX.json"})
    EXPECT_EQ(read_packed_file(pack("other.tar", false, true, {{name, text}, {"u.json", "second"}})), text)
        << name;
  expect_refused(errc::bad_format, "neither", pack("only.tar", false, true, {{"._t.json", attributes}}));
}

TEST_F(files, others_are_refused) {
  const std::string text(100000, 'x');
  expect_refused(errc::io_failure, "readable file", (folder_ / "none").string());
  expect_refused(errc::io_failure, "a directory", folder_.string());
  expect_refused(errc::bad_format, "neither", write("empty", ""));
  expect_refused(errc::bad_format, "neither", pack("b.tar", false, true, {{"a.txt", text}}));
  expect_refused(errc::bad_format, "at most 99999", write("large", text), 99999);
  expect_refused(errc::bad_format, "at most 99999", pack("large.gz", true, false, {{"a", text}}), 99999);
  const std::string packed = pack("cut.gz", true, false, {{"a", text}});
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) / 2);
  expect_refused(errc::bad_format, "a whole gz member", packed);
}

TEST_F(files, damaged_gz_is_refused) {
  const auto content_of = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string text = R"({"schema": "1.0.1", "pid": 1, "nodes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]})";
  for (const bool tar : {false, true}) {
    const std::string whole = content_of(pack("whole.gz", true, tar, {{"a.json", text}}));
    const std::size_t checksum = whole.size() - 8, length = whole.size() - 4;
    for (const std::size_t at : {checksum, checksum + 3, length, length + 3}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      expect_refused(errc::bad_format, "intact gz data and checksum", write("damaged.gz", damaged));
    }
    for (const std::string& rest : {std::string("x"), std::string("\x1F"), std::string(5, '\0')})
      expect_refused(errc::bad_format, "to end with its gz data", write("longer.gz", whole + rest));
    for (std::size_t cut = 2; cut < whole.size(); ++cut)
      expect_refused(errc::bad_format, "gz", write("cut.gz", whole.substr(0, cut)));
    // What a header says in addition to the format (time, name, system) is under no checksum.
    constexpr std::size_t header = 10;
    for (std::size_t bit = 8 * header; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      // Some codes say the same: padding, or a copy of zeros from another position.
      try {
        EXPECT_EQ(read_packed_file(write("flipped.gz", damaged)), text) << bit;
      } catch (const error& e) {
        EXPECT_EQ(e.code(), errc::bad_format);
      }
    }
    EXPECT_EQ(read_packed_file(write("two.gz", content_of(pack("raw.gz", true, false, {{"a", text}})) +
                                                   content_of(pack("raw.gz", true, false, {{"a", "!"}})))),
              text + "!");
  }
}

std::string shared_trace(const char* name) {
  const char* const data = std::getenv("STASH_DATA");
  if (data == nullptr) return {};
  const std::filesystem::path path = std::filesystem::path(data) / ".." / "planner" / "traces" / name;
  return std::filesystem::exists(path) ? path.string() : std::string();
}

struct map_figures {
  std::size_t maps = 0;
  std::int64_t bytes = 0;
};

/// What backward reads of the forward stage, of at least 64 KiB; with a prefix, of what such operators wrote
/// first.
map_figures feature_maps(const planner::graph& g, const std::string& writer = "") {
  planner::id_vector<planner::storage_id, const planner::op*> writers(g.storages.size(), nullptr);
  planner::id_vector<planner::storage_id, bool> read(g.storages.size(), false);
  for (const planner::op& o : g.ops) {
    if (o.stage == planner::op_stage::forward) {
      for (const planner::tensor_ref& r : o.outputs) {
        const planner::op*& first = writers[r.storage];
        if (first == nullptr) first = &o;
      }
    }
    if (o.alternatives.empty()) continue;
    for (const planner::stash_read& r : o.alternatives[0].reads)
      read[r.storage] = true;
  }
  map_figures f;
  for (const planner::storage_id i : read.ids()) {
    if (!read[i] || writers[i] == nullptr || g.storages[i].bytes(1) < 65536) continue;
    if (!writer.empty() && writers[i]->label != writer) continue;
    ++f.maps;
    f.bytes += g.storages[i].bytes(1);
  }
  return f;
}

TEST(shared_traces, resnet50) {
  const std::string path = shared_trace("resnet50_b32_et.json.gz");
  if (path.empty()) GTEST_SKIP() << "no planner/traces next to the folder that STASH_DATA names";
  const planner::trace t = planner::read_trace(read_packed_file(path));
  EXPECT_EQ(t.nodes.size(), 14392U);
  EXPECT_EQ(t.iterations.size(), 3U);
  const planner::graph g = planner::graph_of(t);
  EXPECT_EQ(g.name, "iteration 7");
  EXPECT_EQ(g.ops.size(), 906U);
  // The outputs of all convolutions of ResNet-50: 11,113,984 values per image.
  EXPECT_EQ(feature_maps(g, "aten::cudnn_convolution").maps, 53U);
  EXPECT_EQ(feature_maps(g, "aten::cudnn_convolution").bytes, std::int64_t{11113984} * 32 * 4);
  EXPECT_EQ(feature_maps(g, "aten::cudnn_batch_norm").maps, 49U);
  EXPECT_EQ(feature_maps(g, "aten::max_pool2d_with_indices").bytes,
            std::int64_t{64} * 56 * 56 * 32 * (4 + 8));
  double forward = 0.0;
  for (const planner::op& o : g.ops) {
    if (o.stage == planner::op_stage::forward) forward += o.flops;
  }
  EXPECT_NEAR(forward / 32, 2 * 4.09e9, 0.01e9);  // 4.09 billion multiplications with additions per image
  const planner::plan p = planner::make_plan(g, {});
  EXPECT_THAT(planner::validate(p), IsEmpty());
  EXPECT_NEAR(static_cast<double>(p.sizes.baseline_peak), 2774.7e6, 1e6);
  const planner::graph ten = planner::repeat_graph(g, 10);
  EXPECT_EQ(feature_maps(ten).maps, 10 * feature_maps(g).maps);
}

TEST(shared_traces, every_iteration_of_resnet50_is_the_same_work) {
  const std::string path = shared_trace("resnet50_b32_et.json.gz");
  if (path.empty()) GTEST_SKIP() << "no planner/traces next to the folder that STASH_DATA names";
  const planner::trace t = planner::read_trace(read_packed_file(path));
  for (const std::int64_t iteration : {6, 7, 8}) {
    planner::trace_options options;
    options.iteration = iteration;
    const map_figures f = feature_maps(planner::graph_of(t, options));
    EXPECT_EQ(f.bytes, feature_maps(planner::graph_of(t)).bytes) << iteration;
  }
}

TEST(shared_traces, gpt2) {
  const std::string path = shared_trace("hf_gpt2_et.json.tar.gz");
  if (path.empty()) GTEST_SKIP() << "no planner/traces next to the folder that STASH_DATA names";
  const planner::trace t = planner::read_trace(read_packed_file(path));
  EXPECT_EQ(t.nodes.size(), 27156U);
  const planner::graph g = planner::graph_of(t);
  EXPECT_EQ(g.name, "iteration 0");
  // 36 layers: attention's probabilities are kept once, its dropout once more with a mask.
  EXPECT_EQ(feature_maps(g, "aten::_softmax").bytes, std::int64_t{36} * 20 * 512 * 512 * 4);
  EXPECT_EQ(feature_maps(g, "aten::tanh").bytes, std::int64_t{36} * 512 * 5120 * 4);
  std::int64_t weights = 0;
  for (const planner::storage& s : g.storages)
    weights += s.role == planner::storage_role::weight ? s.fixed_bytes : 0;
  EXPECT_EQ(weights, std::int64_t{774030080} * 4);
  EXPECT_THAT(planner::validate(planner::make_plan(g, {})), IsEmpty());
}

TEST(shared_traces, the_profile_of_another_run_joins_nothing) {
  const std::string path = shared_trace("resnet50_b32_et.json.gz");
  const std::string profile = shared_trace("resnet50_b32_kineto.json.gz");
  if (path.empty() || profile.empty())
    GTEST_SKIP() << "no planner/traces next to the folder that STASH_DATA names";
  planner::trace t = planner::read_trace(read_packed_file(path));
  const auto times = planner::read_kineto(read_packed_file(profile));
  EXPECT_EQ(times.size(), 39416U);
  const planner::joined_times joined = planner::join_times(t, times);
  EXPECT_LT(joined.joined * 100, joined.operators);
  EXPECT_THAT(joined.why, HasSubstr("'Record function id' of its calls"));
  EXPECT_FALSE(planner::graph_of(t).ops.front().seconds.has_value());
}

}  // namespace
}  // namespace stash::tools
