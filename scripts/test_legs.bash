# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The legs of scripts/test: what each of them does, and how they are run, timed and listed. Sourced by that script, which
# has set `mode` and `names`.
# shellcheck disable=SC2154

# Waiting threads sleep: a spinning one takes the core that a busy machine needs for the other.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}

jobs=$(nproc)
times=build/test_seconds.tsv
logs=build/test_logs
table=()
failed=()
first_failure=0
declare -A passed=()

# Name, first mode in which it runs, and what it does.
legs=(
  "packages|core|Debian packages that are missing"
  "configure|core|CMake, preset ci"
  "build|core|library, command, benchmarks and C++ tests; warnings are errors"
  "tests|core|all C++ tests, kernels in the emulator, the command, consumers of the installed library, rules"
  "format|core|clang-format"
  "shell|core|shellcheck"
  "tensorflow|core|the extension and its tests: their core, with --all every one"
  "pytorch|core|the package stash_torch and its tests: their core, with --all every one"
  "torch211|all|the core of these tests under torch 2.11, the oldest that the package takes"
  "reference|all|doxygen finds a comment for every public name"
  "kernels|all|what nvcc makes of the kernels, against their limits (needs nvcc)"
  "cuda|all|programs for a GPU, built by nvcc, on the PTX machine (needs nvcc)"
  "clang|all|encodings and C API with the other compiler"
  "asan|all|what reads foreign bytes or owns memory, under the address and undefined-behaviour sanitizers"
  "tsan|all|tests of threads, and two threads that train with stash_torch, under the thread sanitizer"
  "tidy|all|clang-tidy on what changed since it was last run whole; with --long, on every file"
)

# Tests that run under the address sanitizer, as FOLDER:WORD for selected().
sanitized=('format:^format_(random|golden)$' encoders: runtime: c_api: data: fuzz: support: emulator/ptx:
  emulator/simt: 'simt:random|batch|handles|swap|pool|custom|non_owning')
if [[ $mode == long ]]; then
  # The planner's sweeps over thousands of random networks are left to the tests leg: they take minutes here.
  sanitized+=('planner:network|layout|validator|json|check_graph|training_graph|items|fastest|trace|kineto|repeat_graph'
    models: 'gpu:harness|rows' 'executor:smoke|kernels|swap')
fi

# leg NAME COMMAND...: runs the command under set -e in a subshell and keeps its output in $logs/NAME.log. Not to be called
# inside a condition, where bash would ignore set -e.
leg() {
  local name=$1 start=$SECONDS status seconds result
  shift
  printf '\n=== %s\n' "$name"
  mkdir -p "$logs"
  set +e
  (
    set -e
    "$@"
  ) 2>&1 | tee "$logs/$name.log"
  status=${PIPESTATUS[0]}
  set -e
  seconds=$((SECONDS - start))
  result=passed
  if [[ $status -eq 0 ]]; then
    passed[$name]=yes
    remember "$name" "$seconds"
  else
    result="FAILED ($status)"
    failed+=("$name")
    if [[ $first_failure -eq 0 ]]; then first_failure=$status; fi
  fi
  table+=("$(printf '%-12s %-12s %5d s' "$name" "$result" "$seconds")")
}

# skip NAME REASON
skip() {
  printf '\n=== %s\nskipped: %s\n' "$1" "$2"
  table+=("$(printf '%-12s %-12s %s' "$1" skipped "$2")")
}

# needs EARLIER NAME COMMAND...: the leg NAME, if the leg EARLIER has passed.
needs() {
  local earlier=$1
  shift
  if [[ ${passed[$earlier]-} ]]; then leg "$@"; else skip "$1" "$earlier did not pass"; fi
}

# remember LEG SECONDS: for list_legs.
remember() {
  mkdir -p build
  printf '%s\t%s\t%s\t%s\n' "$1" "$mode" "$2" "$(date --utc +%Y-%m-%dT%H:%MZ)" >>"$times"
}

list_legs() {
  local row name from what last
  printf '%-12s %-13s %-30s %s\n' leg runs "last passed here" "what it does"
  for row in "${legs[@]}"; do
    IFS='|' read -r name from what <<<"$row"
    last=never
    if [[ -f $times ]]; then
      last=$(awk -F'\t' -v name="$name" \
        '$1 == name { said = $3 " s (" $2 ", " $4 ")" } END { print said ? said : "never" }' "$times")
    fi
    if [[ $from == core ]]; then from=always; else from="with --all"; fi
    printf '%-12s %-13s %-30s %s\n' "$name" "$from" "$last" "$what"
  done
}

# A reader who has only the end of the output sees why a leg failed.
summary() {
  local name
  for name in "${failed[@]}"; do
    printf '\n=== %s failed; the end of %s\n' "$name" "$logs/$name.log"
    tail -n 25 "$logs/$name.log"
  done
  printf '\n=== summary\n'
  printf '%s\n' "${table[@]}"
  if [[ -z ${STASH_DATA-} ]]; then
    echo "note: STASH_DATA is not set, so tests on the Fashion-MNIST files were skipped"
  fi
  exit "$first_failure"
}

tracked() { git -c safe.directory="$PWD" ls-files "$@"; }

# The legs compile many of the same files, and the next run most of them again: a compiler cache, found by contents,
# gives back what has not changed. It is asked for by the environment, so that builds inside tests use it as well.
use_compiler_cache() {
  if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    # A clone in another folder finds what this one compiled.
    export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=yes
    # No preprocessor before the compiler: what it read is known afterwards.
    export CCACHE_DEPEND=1
    # Precompiled headers want both: no source asks for the time, and macros are the same wherever one is used.
    export CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
}

configure() { cmake --preset ci; }

build() {
  if [[ $mode == named ]]; then
    mapfile -t targets < <(programs_of_names)
    if [[ ${#targets[@]} -eq 0 ]]; then return 0; fi
    cmake --build --preset ci --parallel "$jobs" --target "${targets[@]}"
  else
    cmake --build --preset ci --parallel "$jobs"
  fi
}

# A test has the name of its program, but for some that run another one's or a script: those need all.
programs_of_names() {
  local name test
  for name in "${names[@]}"; do
    if [[ $name == tensorflow.* || $name == pytorch.* ]]; then continue; fi
    while read -r test; do
      if grep -q "^build $test: phony\|^build .*/$test: CXX_EXECUTABLE_LINKER" build/ci/build.ninja; then
        echo "$test"
      else
        echo all
      fi
    done < <(tests_named "$name")
  done | sort -u
}

# tests_named WORD [FOLDER]: names of the tests below FOLDER of the build that have the word in their name.
tests_named() {
  ctest --test-dir "${2-build/ci}" --show-only --tests-regex "$1" | sed -n 's/^ *Test *#[0-9]*: //p'
}

all_tests() {
  local without=()
  if [[ $mode == core ]]; then without=(--label-exclude '^slow$'); fi
  ctest --preset ci --parallel "$jobs" "${without[@]}"
}

named_tests() {
  local name
  for name in "${names[@]}"; do
    if [[ $name == tensorflow.* ]]; then
      tensorflow_build
      tensorflow_tests "integrations/tensorflow/tests/test_${name#tensorflow.}.py"
    elif [[ $name == pytorch.* ]]; then
      pytorch_build
      pytorch_tests build/venv-torch "integrations/pytorch/tests/test_${name#pytorch.}.py"
    else
      ctest --preset ci --parallel "$jobs" --tests-regex "$name" --no-tests=error
    fi
  done
}

# selected PRESET FOLDER:[WORD]: the tests in this folder (of tests/, or emulator/...), or only those with the word in their
# name or label.
selected() {
  local folder=build/$1/tests/${2%%:*} word=${2#*:}
  if [[ $2 == emulator/* ]]; then folder=build/$1/${2%%:*}; fi
  {
    tests_named "$word" "$folder"
    ctest --test-dir "$folder" --show-only --label-regex "$word" | sed -n 's/^ *Test *#[0-9]*: //p'
  } | sort -u
}

# with_preset PRESET FOLDER:[WORD]...: builds and runs only the selected test programs. Their log is shown only on failure,
# so that the tests leg's summary stays the only one of its kind in the output.
with_preset() {
  local preset=$1 log=build/$1/ctest.log selection found all=()
  shift
  cmake --preset "$preset"
  for selection in "$@"; do
    # A test has the name of its program.
    found=$(selected "$preset" "$selection")
    if [[ -z $found ]]; then
      echo "no test is selected by '$selection'"
      return 1
    fi
    mapfile -t -O "${#all[@]}" all <<<"$found"
  done
  cmake --build --preset "$preset" --parallel "$jobs" --target "${all[@]}"
  # Thread sanitizer of gcc 12 cannot place its shadow memory under strong address randomisation.
  local plain_addresses=()
  if setarch -R true 2>/dev/null; then plain_addresses=(setarch -R); fi
  if ! "${plain_addresses[@]}" ctest --test-dir "build/$preset" --output-on-failure --parallel "$jobs" \
    --tests-regex "^($(IFS='|' && echo "${all[*]}"))\$" >"$log"; then
    cat "$log"
    return 1
  fi
  echo "${#all[@]} test programs passed under the $preset preset:" "${all[@]}"
}

# tsan: tests of threads, and two threads that train with stash_torch, if a Python with torch is there.
tsan() {
  with_preset tsan encoders:threads runtime:threads c_api:threads
  local python=build/venv-torch/bin/python runtime
  runtime=$(gcc -print-file-name=libtsan.so)
  if [[ $runtime != /* ]]; then
    echo "skipped: two threads that train with stash_torch: gcc has no libtsan.so"
  elif [[ ! -x $python ]]; then
    echo "skipped: two threads that train with stash_torch: there is no $python (scripts/install_torch)"
  else
    cmake --build --preset tsan --parallel "$jobs" --target stash_torch
    two_threads "$runtime" "$python"
  fi
}

# two_threads LIBTSAN PYTHON: Python and torch are not instrumented, so only what the library does counts. The sanitizer must
# find the race that the program makes when it is asked to.
two_threads() {
  local program=integrations/pytorch/tests/two_threads.py log=build/tsan/two_threads.log status=0 plain_addresses=() run
  if setarch -R true 2>/dev/null; then plain_addresses=(setarch -R); fi
  run=("${plain_addresses[@]}" env LD_PRELOAD="$1" TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66"
    KINETO_LOG_LEVEL=99 PYTHONPATH="$PWD/build/tsan/integrations/pytorch" "$2" -B "$program")
  if ! "${run[@]}" >"$log" 2>&1; then
    cat "$log"
    return 1
  fi
  grep "^two_threads:" "$log"
  "${run[@]}" --race >"$log" 2>&1 || status=$?
  if [[ $status -ne 66 ]] || ! grep -q "ThreadSanitizer: data race" "$log"; then
    echo "two_threads: expected the sanitizer to report the race (status 66), got status $status"
    return 1
  fi
  echo "two_threads: the sanitizer has seen the race that it should"
}

format() {
  tracked -z '*.hpp' '*.cpp' '*.h' '*.c' | xargs -0 --no-run-if-empty clang-format --dry-run -Werror
}

shell_scripts() {
  tracked -z scripts tests/packages .ci/run | xargs -0 grep -lZ -e '^#!.*bash' -e '^# shellcheck shell=bash' | xargs -0 shellcheck -x
}

# Skipped only where kernel_facts itself says that there is no nvcc; whatever else happens, as where CUDACXX names none, the
# leg runs or fails.
kernel_legs() {
  local status=0 architectures=--newest
  nvcc=$(scripts/kernel_facts --find-nvcc) || status=$?
  if [[ $status -eq 77 ]]; then
    skip kernels "there is no nvcc"
    skip cuda "there is no nvcc"
    return
  fi
  if [[ $mode == long ]]; then architectures=--all; fi
  leg kernels scripts/kernel_facts ${nvcc:+--nvcc "$nvcc"} --jobs "$jobs" "$architectures"
  if [[ $nvcc ]]; then leg cuda cuda_programs; else skip cuda "see the kernels"; fi
}

# What runs on a GPU is compiled and linked; the emulator has run its sources, here its PTX runs, and only
# scripts/gpu_check runs it there. What a user sees without a GPU, also of these programs, is tested here.
cuda_programs() {
  CUDACXX=$nvcc cmake --preset cuda
  cmake --build --preset cuda --parallel "$jobs" --target gpu_check gpu_bench custom_layer_cuda \
    encoders_no_driver_static encoders_no_driver_shared ptx_programs
  ctest --test-dir build/cuda --output-on-failure --parallel "$jobs" \
    --tests-regex '^(encoders_no_driver_.*|gpu_bench_record_cuda|example_custom_layer_cuda|ptx_.*)$'
}

# tensorflow [PYTEST ARGUMENT...]: TensorFlow's tests need its wheels, which are fetched once; nothing else does.
tensorflow() {
  tensorflow_build
  tensorflow_tests "$@" integrations/tensorflow/tests
  if [[ ${passed[cuda]-} ]]; then
    CUDACXX=$nvcc cmake --preset cuda -DSTASH_TENSORFLOW_PYTHON="$PWD/build/venv-tensorflow/bin/python"
    cmake --build --preset cuda --parallel "$jobs" --target stash_tf
    PYTHONPATH=$PWD/build/cuda/integrations/tensorflow build/venv-tensorflow/bin/python \
      integrations/tensorflow/tests/check_gpu_kernels.py
  fi
}

tensorflow_build() {
  scripts/install_tensorflow --pytest
  cmake --preset ci -DSTASH_TENSORFLOW_PYTHON="$PWD/build/venv-tensorflow/bin/python"
  cmake --build --preset ci --parallel "$jobs" --target stash_tf
}

tensorflow_tests() {
  PYTHONPATH=$PWD/build/ci/integrations/tensorflow build/venv-tensorflow/bin/python -m pytest -q --durations=10 \
    -p no:cacheprovider --numprocesses "$jobs" --dist loadfile "$@"
}

# pytorch [PYTEST ARGUMENT...]: PyTorch's wheel is fetched once.
pytorch() {
  pytorch_build
  pytorch_tests build/venv-torch "$@" integrations/pytorch/tests
  if [[ $mode != core ]]; then
    pytorch_tests build/venv-torch --functions -m "not slow" integrations/pytorch/tests/test_{bits,programs,recipes}.py
  fi
}

# torch211: nodes of autograd are seen in another way there.
torch211() {
  local oldest=2.11.0
  scripts/install_torch --pytest "$oldest"
  pytorch_tests "build/venv-torch-$oldest" -m "not slow" integrations/pytorch/tests
}

pytorch_build() {
  scripts/install_torch --pytest
  cmake --preset ci
  cmake --build --preset ci --parallel "$jobs" --target stash_torch stash_torch_emulated stash_cli
}

# pytorch_tests VENV PYTEST ARGUMENT...
pytorch_tests() {
  local venv=$1
  shift
  PYTHONPATH=$PWD/build/ci/integrations/pytorch "$venv/bin/python" -m pytest -q --durations=10 \
    -p no:cacheprovider --numprocesses "$jobs" --dist loadfile "$@"
}

tidy() {
  local every=()
  if [[ $mode == long ]]; then every=(--all); fi
  scripts/tidy --jobs "$jobs" "${every[@]}"
}
