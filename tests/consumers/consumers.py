# SPDX-License-Identifier: Apache-2.0
"""Builds and runs projects that use the library the three ways that the README names.

usage: consumers.py WAY SOURCE BUILD WORK [C++ COMPILER] [C COMPILER]
WAY is install, find_package, c_only, pkg_config, python, solver, library_alone, layouts, add_subdirectory or host_flags.
SOURCE and BUILD are the library's, WORK is a folder for what the tests write.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile


def attempt(*command, environment=None):
    """Exit status and what was printed."""
    result = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"$ {' '.join(command)}\n{result.stdout}", flush=True)
    return result.returncode, result.stdout


def run(*command, environment=None):
    status, printed = attempt(*command, environment=environment)
    if status != 0:
        sys.exit(f"failed with status {status}")
    return printed


def run_consumer(program, environment=None):
    if " bytes kept instead of 20000 by stash " not in run(program, environment=environment):
        sys.exit(f"{program} did not say what it kept")


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def configuring(project, build, compilers, *options):
    # CMake's own choice would be make, which nothing else here needs.
    return ("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_CXX_COMPILER={compilers[0]}",
            f"-DCMAKE_C_COMPILER={compilers[1]}", *options)


def configure(project, build, compilers, *options):
    run(*configuring(project, build, compilers, *options))


def package_flags(work):
    """Of the installed library, by pkg-config that finds no other package."""
    folders = [root for root, _, files in os.walk(f"{work}/installed") if "stash.pc" in files]
    alone = dict(os.environ, PKG_CONFIG_PATH=folders[0], PKG_CONFIG_LIBDIR=folders[0])
    rpath = run("pkg-config", "--variable=libdir", "stash", environment=alone).strip()
    return [*run("pkg-config", "--cflags", "--libs", "stash", environment=alone).split(), f"-Wl,-rpath,{rpath}"]


def install(source, build, work, compilers):
    fresh(f"{work}/installed")
    run("cmake", "--install", build, "--prefix", f"{work}/first")
    # An installed tree can be moved: nothing in it may name the path that it was built for.
    os.rename(f"{work}/first", f"{work}/installed")


def find_package(source, build, work, compilers):
    project, to = f"{source}/tests/consumers/find_package", fresh(f"{work}/find_package")
    configure(project, to, compilers, f"-DCMAKE_PREFIX_PATH={work}/installed")
    run("cmake", "--build", to)
    for program in ("consumer_c", "consumer", "consumer_static"):
        run_consumer(f"{to}/{program}")
        linked = "libstash.so" in run("ldd", f"{to}/{program}")
        if linked != (program != "consumer_static"):
            sys.exit(f"{program} is{'' if linked else ' not'} linked with the shared library")
    # The shared library needs nothing of the developer's.
    alone = fresh(f"{work}/find_package_alone")
    configure(project, alone, compilers, f"-DCMAKE_PREFIX_PATH={work}/installed", "-DCONSUMER_ALONE=ON")
    run("cmake", "--build", alone)
    for program in ("consumer_c", "consumer"):
        run_consumer(f"{alone}/{program}")


def c_only(source, build, work, compilers):
    to = fresh(f"{work}/c_only")
    configure(f"{source}/tests/consumers/c_only", to, compilers, f"-DCMAKE_PREFIX_PATH={work}/installed")
    run("cmake", "--build", to)
    run_consumer(f"{to}/consumer_static")
    if "libstash.so" in run("ldd", f"{to}/consumer_static"):
        sys.exit("consumer_static is linked with the shared library")


def pkg_config(source, build, work, compilers):
    to = fresh(f"{work}/pkg_config")
    os.makedirs(to)
    folders = [root for root, _, files in os.walk(f"{work}/installed") if "stash.pc" in files]
    libraries = os.path.dirname(folders[0])
    # Nothing else tells programs where the library lies, in a folder that the system does not search.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    flags = package_flags(work)
    run(compilers[1], f"{source}/tests/consumers/find_package/consumer.c", *flags, "-o", f"{to}/consumer_c")
    run_consumer(f"{to}/consumer_c", environment)
    run(compilers[0], "-std=c++20", f"{source}/tests/consumers/find_package/consumer.cpp", *flags, "-o", f"{to}/consumer")
    run_consumer(f"{to}/consumer", environment)
    # Without the shared library next to it, -lstash means the static one, which needs what stands in --static.
    only_static = f"{to}/static"
    os.makedirs(only_static)
    shutil.copy(f"{libraries}/libstash.a", only_static)
    static = run("pkg-config", "--static", "--libs", "stash",
                 environment=dict(environment, PKG_CONFIG_PATH=folders[0])).split()
    static = [flag for flag in static if not flag.startswith("-L")]
    include = [flag for flag in flags if flag.startswith("-I")]
    run(compilers[1], f"{source}/tests/consumers/find_package/consumer.c", *include, f"-L{only_static}", *static,
        "-o", f"{to}/consumer_static")
    run_consumer(f"{to}/consumer_static")


def python(source, build, work, compilers):
    """stash.py finds the library that it was installed with, where pkg-config says that it lies."""
    folders = [root for root, _, files in os.walk(f"{work}/installed") if "stash.pc" in files]
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    folder = run("pkg-config", "--variable=pythondir", "stash",
                 environment=dict(environment, PKG_CONFIG_LIBDIR=folders[0])).strip()
    run(sys.executable, "-B", f"{source}/tests/python/stash_test.py", folder, "", source, compilers[0],
        environment=environment)


def solver(source, build, work, compilers):
    """Who only encodes loads no solver of linear programs; a plan for speed does, and has its bound from it."""
    flags = package_flags(work)
    library = next(os.path.join(root, "libstash.so") for root, _, files in os.walk(f"{work}/installed")
                   if "libstash.so" in files)
    graph = f"{work}/solver.json"
    run(f"{work}/installed/bin/stash", "graph", "vgg16", "--batch", "2", "-o", graph)
    run(compilers[1], f"{source}/tests/consumers/solver.c", *flags, "-o", f"{work}/solver_c")
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    expected = "lossless: no solver\nfor speed: solver, relaxed\n"
    if run(f"{work}/solver_c", graph, environment=environment) != expected:
        sys.exit(f"expected {expected}")
    # A library that was copied without its module plans as a build without a solver does.
    alone = fresh(f"{work}/without_module")
    os.makedirs(alone)
    shutil.copy(os.path.realpath(library), f"{alone}/libstash.so.{so_version(library)}")
    if "not relaxed" not in run(f"{work}/solver_c", graph, environment=dict(environment, LD_LIBRARY_PATH=alone)):
        sys.exit("expected a plan without a relaxation")


def so_version(library):
    """0.1 of libstash.so.0.1, the name that programs look for."""
    return os.readlink(library).split(".so.")[1]


def library_alone(source, build, work, compilers):
    """The component of the library needs nothing else to have been built."""
    to = fresh(f"{work}/library_alone")
    here = f"{to}/build"
    configure(source, here, compilers, "-DCMAKE_BUILD_TYPE=Release", "-DSTASH_BUILD_TESTS=OFF",
              "-DSTASH_BUILD_EXAMPLES=OFF")
    copy_libraries(build, here, work)
    run("cmake", "--install", here, "--component", "stash_library", "--prefix", f"{to}/made")
    made = {os.path.relpath(os.path.join(root, file), f"{to}/made") for root, _, files in os.walk(f"{to}/made")
            for file in files}
    for file in ("include/stash/c_api.h", "libstash.a", "libstash.so", "stash.pc", "stash-config.cmake", "stash.py"):
        if not any(f"/{path}".endswith(f"/{file}") for path in made):
            sys.exit(f"{file} was not installed")
    if any(path.startswith(("bin/", "share/")) for path in made):
        sys.exit("the command was installed")


def copy_libraries(build, to, work):
    """They are the same however a build is configured otherwise, so they are not built again."""
    built = os.path.dirname(next(os.path.join(root, "libstash.a") for root, _, files in os.walk(build)
                                 if "libstash.a" in files and work not in root))
    for library in os.listdir(built):
        if library.startswith("libstash."):
            shutil.copy(f"{built}/{library}", f"{to}/{os.path.relpath(built, build)}", follow_symlinks=False)
    if os.path.isdir(f"{built}/stash"):
        shutil.copytree(f"{built}/stash", f"{to}/{os.path.relpath(built, build)}/stash", dirs_exist_ok=True)


def layouts(source, build, work, compilers):
    """Wherever libraries and headers are installed, pkg-config and find_package say so."""
    # Outside of the source folder, in which CMake lets no headers be installed.
    with tempfile.TemporaryDirectory(prefix="stash_layouts_") as to:
        layouts_in(to, source, build, work, compilers)


def layouts_in(to, source, build, work, compilers):
    for name, libraries, headers in (("one", "lib", "include"),
                                     ("two", "lib/machine", "include/deep/er"),
                                     ("three", "lib/machine/stash", "include"),
                                     ("libraries", f"{to}/separate/lib", "include"),
                                     ("headers", "lib64", f"{to}/separate/include"),
                                     ("both", f"{to}/both/separate/lib", f"{to}/both/separate/include"),
                                     ("below", f"{to}/below/made/lib/machine", f"{to}/below/made/include")):
        here = f"{to}/{name}"
        configure(source, f"{here}/build", compilers, "-DCMAKE_BUILD_TYPE=Release", "-DSTASH_BUILD_EXECUTOR=OFF",
                  "-DSTASH_BUILD_TESTS=OFF", "-DSTASH_BUILD_EXAMPLES=OFF", f"-DCMAKE_INSTALL_PREFIX={here}/made",
                  f"-DCMAKE_INSTALL_LIBDIR={libraries}", f"-DCMAKE_INSTALL_INCLUDEDIR={headers}")
        copy_libraries(build, f"{here}/build", work)
        run("cmake", "--install", f"{here}/build")
        prefix = f"{here}/made"
        if not os.path.isabs(libraries):
            prefix = f"{here}/moved"
            os.rename(f"{here}/made", prefix)
        libraries, headers = os.path.join(prefix, libraries), os.path.join(prefix, headers)
        environment = dict(os.environ, PKG_CONFIG_LIBDIR=f"{libraries}/pkgconfig", LD_LIBRARY_PATH=libraries)
        for variable, expected in (("prefix", prefix), ("libdir", libraries), ("includedir", headers)):
            said = run("pkg-config", f"--variable={variable}", "stash", environment=environment).strip()
            if os.path.realpath(said) != os.path.realpath(expected):
                sys.exit(f"{name}: {variable} is {said}, expected {expected}")
        if libraries.startswith(f"{here}/made/"):
            # As with DESTDIR: the same tree, below another folder.
            shutil.copytree(f"{here}/made", f"{here}/staged", symlinks=True)
            staged = dict(environment, PKG_CONFIG_LIBDIR=f"{libraries}/pkgconfig".replace("/made/", "/staged/"))
            said = run("pkg-config", "--variable=includedir", "stash", environment=staged).strip()
            if not os.path.exists(f"{said}/stash/c_api.h") or "/staged/" not in said:
                sys.exit(f"{name}: includedir is {said}, expected one that lies below {here}/staged")
        flags = run("pkg-config", "--cflags", "--libs", "stash", environment=environment).split()
        run(compilers[1], f"{source}/tests/consumers/find_package/consumer.c", *flags, "-o", f"{here}/consumer_c")
        run_consumer(f"{here}/consumer_c", environment)
        configure(f"{source}/tests/consumers/find_package", f"{here}/project", compilers, "-DCONSUMER_ALONE=ON",
                  f"-Dstash_DIR={libraries}/cmake/stash")
        run("cmake", "--build", f"{here}/project", "--target", "consumer_c")
        run_consumer(f"{here}/project/consumer_c")


def add_subdirectory(source, build, work, compilers):
    to = fresh(f"{work}/add_subdirectory")
    # Errors as in the library's own build, whose objects a compiler cache may know.
    configure(f"{source}/tests/consumers/add_subdirectory", to, compilers, f"-DSTASH_SOURCE_DIR={source}",
              "-DSTASH_WARNINGS_AS_ERRORS=ON")
    run("cmake", "--build", to, "--target", "consumer", "consumer_c")
    run_consumer(f"{to}/consumer")
    run_consumer(f"{to}/consumer_c")
    shutil.rmtree(to)


# What a project may give to all of its targets, and what the library's own targets answer after it.
ANSWERS = {"-ffast-math": "-fno-fast-math", "-funsafe-math-optimizations": "-fno-fast-math",
           "-ffp-contract=fast": "-ffp-contract=off", "-fno-exceptions": "-fexceptions", "-fno-rtti": "-frtti",
           "-funsigned-char": "-fsigned-char", "-fno-threadsafe-statics": "-fthreadsafe-statics",
           "-Werror": "-Wno-error"}
LINK_ANSWERS = {"-ffast-math": "-fno-fast-math", "-funsafe-math-optimizations": "-fno-unsafe-math-optimizations"}


def check_order(command, answers):
    words = command.split()
    for flag, answer in answers.items():
        if flag not in words:
            sys.exit(f"no {flag} in: {command}")
        if answer not in words or words[::-1].index(answer) > words[::-1].index(flag):
            sys.exit(f"no {answer} after {flag} in: {command}")


def refused(sentence, *command):
    status, printed = attempt(*command)
    if status == 0 or sentence not in " ".join(printed.split()):
        sys.exit(f"expected to be refused with '{sentence}'")


def host_flags(source, build, work, compilers):
    """Flags that a project has for all of its targets change no result and no error of the library in it."""
    to = fresh(f"{work}/host_flags")
    project = f"{source}/tests/consumers/host_flags"
    os.makedirs(to)
    run(compilers[0], "-std=c++20", f"{project}/numbers.cpp", f"{project}/thrown.cpp", *package_flags(work),
        "-o", f"{to}/reference")
    expected = run(f"{to}/reference")

    # Of Highway's loops only those for the compiler's own target, which take a tenth of the time.
    quick = "-DHWY_COMPILE_ONLY_STATIC"
    everything = f"{quick} -O1 -march=native {' '.join(ANSWERS)}"
    for name, *options in (("all", f"-DCMAKE_CXX_FLAGS={everything}", "-DCMAKE_BUILD_TYPE=", "-DCMAKE_UNITY_BUILD=ON",
                            "-DCMAKE_CXX_STANDARD=17"),
                           ("ofast", f"-DCMAKE_CXX_FLAGS={quick}", "-DCMAKE_BUILD_TYPE=Release",
                            "-DCMAKE_CXX_FLAGS_RELEASE=-Ofast")):
        here = f"{to}/{name}"
        configure(project, here, compilers, f"-DSTASH_SOURCE_DIR={source}", *options)
        run("cmake", "--build", here, "--target", "numbers")
        if run(f"{here}/numbers") != expected:
            sys.exit(f"{name}: other numbers than those of the installed library")

    # All of the library is compiled as the part that was built here.
    commands = run("ninja", "-C", f"{to}/all", "-t", "commands", "stash_shared").splitlines()
    compiled = [command for command in commands if re.search(rf" -c {re.escape(source)}/src/", command)]
    if len(compiled) < 50:
        sys.exit("the commands that compile the library were not found")
    for command in compiled:
        check_order(command, ANSWERS)
    linked = [command for command in commands if " -shared " in command]
    if len(linked) not in (1, 2):  # the library, and the module of its solver if there is one
        sys.exit("the commands that link the library were not found")
    for command in linked:
        check_order(command, LINK_ANSWERS)

    if platform.machine() == "x86_64" and "clang" not in run(compilers[0], "--version"):
        here = f"{to}/x87"
        configure(project, here, compilers, f"-DSTASH_SOURCE_DIR={source}", "-DCMAKE_CXX_FLAGS=-mfpmath=387")
        refused("Stash: float has to be computed as float", "cmake", "--build", here, "--target",
                "stash/src/encoders/CMakeFiles/stash_encoders.dir/format/values.cpp.o")
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if nvcc:
        refused("Stash: the kernels cannot be compiled with --use_fast_math",
                *configuring(project, f"{to}/cuda", compilers, f"-DSTASH_SOURCE_DIR={source}", "-DSTASH_ENABLE_CUDA=ON",
                             f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_CUDA_FLAGS=--use_fast_math"))
    shutil.rmtree(to)


WAYS = {"install": install, "find_package": find_package, "c_only": c_only, "pkg_config": pkg_config, "python": python,
        "solver": solver, "library_alone": library_alone, "layouts": layouts,
        "add_subdirectory": add_subdirectory, "host_flags": host_flags}

if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] not in WAYS:
        sys.exit(__doc__)
    os.makedirs(sys.argv[4], exist_ok=True)
    WAYS[sys.argv[1]](*sys.argv[2:5], sys.argv[5:])
