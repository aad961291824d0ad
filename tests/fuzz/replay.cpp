// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: on its seeds and on mutations of them, the same at every run, or on
// files.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "fuzz/target.hpp"

namespace stash::fuzz {
namespace {

class mutator {
 public:
  explicit mutator(const std::vector<bytes>& all) : all_(all) {}

  bytes next() {
    bytes input = all_[below(all_.size())];
    // Fields mean most at the front, so half of the changes are made there.
    for (std::size_t changes = 1 + below(6); changes > 0; --changes)
      change(input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  void change(bytes& input) {
    static constexpr std::uint32_t telling[] = {0,          1,          0x7f,       0x80,       0xff,
                                                0x100,      0x7fff,     0x8000,     0xffff,     0x10000,
                                                0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0xc0000000,
                                                0xffffffff, 0x00000803, 0x088b1f};
    if (input.empty()) input.push_back(0);
    const std::size_t reach = below(2) == 0 ? std::min<std::size_t>(input.size(), 48) : input.size();
    const std::size_t at = below(reach);
    switch (below(6)) {
      case 0:
        input[at] = static_cast<std::uint8_t>(input[at] ^ 1U << below(8));
        break;
      case 1:
        input[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2: {
        const std::uint32_t value = telling[below(std::size(telling))];
        std::memcpy(&input[at], &value, std::min<std::size_t>(std::size_t{1} << below(3), input.size() - at));
        break;
      }
      case 3:
        input.resize(at);
        break;
      case 4:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(20),
                     static_cast<std::uint8_t>(random_()));
        break;
      default: {  // the end of another one
        const bytes& other = all_[below(all_.size())];
        if (other.size() <= at) break;
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
        break;
      }
    }
  }

  const std::vector<bytes>& all_;
  std::minstd_rand random_{1};
};

struct options {
  long mutations = 1000;
  bool verbose = false;
  std::string seed_folder;
  std::vector<std::filesystem::path> files;
};

[[noreturn]] void usage(int status) {
  std::puts(
      "usage: fuzz_TARGET [--mutations N] [--verbose] [--write-seeds FOLDER] [FILE or FOLDER]...\n"
      "  --mutations N         how many mutated seeds are run after the seeds (default 1000)\n"
      "  --verbose             prints every input in hexadecimal before it is run\n"
      "  --write-seeds FOLDER  only writes the seeds, a file each\n"
      "  FILE or FOLDER        runs these inputs instead of seeds");
  std::exit(status);
}

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") usage(0);
    if (argument == "--verbose") {
      o.verbose = true;
    } else if (argument == "--mutations" && i + 1 < argc) {
      o.mutations = std::strtol(argv[++i], nullptr, 10);
    } else if (argument == "--write-seeds" && i + 1 < argc) {
      o.seed_folder = argv[++i];
    } else if (argument.starts_with("-")) {
      usage(2);
    } else {
      o.files.emplace_back(argument);
    }
  }
  return o;
}

void run_one(const bytes& input, bool verbose) {
  if (verbose) {
    for (const std::uint8_t byte : input)
      std::printf("%02x", byte);
    std::puts("");
    std::fflush(stdout);
  }
  // A copy of exactly this size: vectors may own more than they hold.
  const exact_buffer exact(input);
  run({exact.data(), exact.size()});
}

bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<bytes> read_all(const std::vector<std::filesystem::path>& paths) {
  std::vector<bytes> inputs;
  for (const std::filesystem::path& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      inputs.push_back(read_file(path));
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      inputs.push_back(read_file(entry.path()));
  }
  return inputs;
}

void write_seeds(const std::string& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const bytes& seed : seeds()) {
    std::ofstream file(folder + "/seed_" + std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  }
}

int replay(int argc, char** argv) {
  const options o = parse(argc, argv);
  if (!o.seed_folder.empty()) {
    write_seeds(o.seed_folder);
    return 0;
  }
  const std::vector<bytes> inputs = o.files.empty() ? seeds() : read_all(o.files);
  require(!inputs.empty(), "there is an input");
  for (const bytes& input : inputs)
    run_one(input, o.verbose);
  const long mutations = o.files.empty() ? o.mutations : 0;
  mutator mutate(inputs);
  for (long i = 0; i < mutations; ++i)
    run_one(mutate.next(), o.verbose);
  std::printf("%zu inputs and %ld mutations of them ran\n", inputs.size(), mutations);
  return 0;
}

}  // namespace

bool is_examined(std::span<const std::uint8_t> /*input*/, std::uint32_t /*n*/) {
  return true;
}

}  // namespace stash::fuzz

int main(int argc, char** argv) {
  setenv("STASH_VERIFY", "1", 1);
  return stash::fuzz::replay(argc, argv);
}
