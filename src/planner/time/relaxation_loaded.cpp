// SPDX-License-Identifier: Apache-2.0
// Linear programs solved by a module that is opened when it is first needed. It lies in the folder `stash`
// next to the library. Where it is missing, or one of its libraries is, there is no solver: bounds are weaker
// and say so.

#include <dlfcn.h>

#include <string>

#include "planner/time/relaxation.hpp"
#include "planner/time/relaxation_program.hpp"
#include "planner/time/solver_module.hpp"

namespace stash::planner {
namespace {

/// Of the library that contains this function; empty if the system cannot tell.
std::string folder_of_library() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_library), &found) == 0 || found.dli_fname == nullptr)
    return {};
  const std::string file = found.dli_fname;
  const std::size_t end = file.rfind('/');
  return end == std::string::npos ? std::string{} : file.substr(0, end + 1);
}

stash_solve_linear_program_t* load() {
  const std::string folder = folder_of_library();
  // Never closed: solver libraries leave handlers and thread-local memory.
  void* const module =
      folder.empty() ? nullptr : dlopen((folder + "stash/" STASH_SOLVER_FILE).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return nullptr;
  return reinterpret_cast<stash_solve_linear_program_t*>(dlsym(module, solver_function));
}

stash_solve_linear_program_t* solver() {
  static stash_solve_linear_program_t* const loaded = load();
  return loaded;
}

}  // namespace

bool can_relax() noexcept {
  try {
    return solver() != nullptr;
  } catch (...) {
    return false;  // out of memory while its name was made; the next call tries again
  }
}

lp_solution solve(const linear_program& program, const std::function<bool()>& stop) {
  lp_solution solution;
  if (auto* const call = solver()) call(program, stop, solution);
  return solution;
}

}  // namespace stash::planner
