# SPDX-License-Identifier: Apache-2.0
"""Builds and runs projects that use the library the three ways that the README names.

usage: consumers.py install|find_package|pkg_config|add_subdirectory SOURCE BUILD WORK [C++ COMPILER] [C COMPILER]
SOURCE and BUILD are the library's, WORK is a folder for what the tests write.
"""

import os
import shutil
import subprocess
import sys


def run(*command, environment=None):
    result = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"$ {' '.join(command)}\n{result.stdout}", flush=True)
    if result.returncode != 0:
        sys.exit(f"failed with status {result.returncode}")
    return result.stdout


def run_consumer(program, environment=None):
    if " bytes kept instead of 20000 by stash " not in run(program, environment=environment):
        sys.exit(f"{program} did not say what it kept")


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def configure(project, build, compilers, *options):
    # CMake's own choice would be make, which nothing else here needs.
    run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_CXX_COMPILER={compilers[0]}",
        f"-DCMAKE_C_COMPILER={compilers[1]}", *options)


def install(source, build, work, compilers):
    fresh(f"{work}/installed")
    run("cmake", "--install", build, "--prefix", f"{work}/first")
    # An installed tree can be moved: nothing in it may name the place that it was made for.
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


def pkg_config(source, build, work, compilers):
    to = fresh(f"{work}/pkg_config")
    os.makedirs(to)
    places = [root for root, _, files in os.walk(f"{work}/installed") if "stash.pc" in files]
    libraries = os.path.dirname(places[0])
    environment = dict(os.environ, PKG_CONFIG_PATH=places[0], LD_LIBRARY_PATH=libraries)
    # PKG_CONFIG_LIBDIR: no other package is there to be found.
    alone = dict(environment, PKG_CONFIG_LIBDIR=places[0])
    flags = run("pkg-config", "--cflags", "--libs", "stash", environment=alone).split()
    run(compilers[1], f"{source}/tests/consumers/find_package/consumer.c", *flags, "-o", f"{to}/consumer_c")
    run_consumer(f"{to}/consumer_c", environment)
    run(compilers[0], "-std=c++20", f"{source}/tests/consumers/find_package/consumer.cpp", *flags, "-o", f"{to}/consumer")
    run_consumer(f"{to}/consumer", environment)
    # Without the shared library beside it, -lstash means the static one, which needs what stands in --static.
    only_static = f"{to}/static"
    os.makedirs(only_static)
    shutil.copy(f"{libraries}/libstash.a", only_static)
    static = run("pkg-config", "--static", "--libs", "stash", environment=environment).split()
    static = [flag for flag in static if not flag.startswith("-L")]
    include = [flag for flag in flags if flag.startswith("-I")]
    run(compilers[1], f"{source}/tests/consumers/find_package/consumer.c", *include, f"-L{only_static}", *static, "-lm",
        "-o", f"{to}/consumer_static")
    run_consumer(f"{to}/consumer_static")


def add_subdirectory(source, build, work, compilers):
    to = fresh(f"{work}/add_subdirectory")
    # Errors as in the library's own build, whose objects a compiler cache may know.
    configure(f"{source}/tests/consumers/add_subdirectory", to, compilers, f"-DSTASH_SOURCE_DIR={source}",
              "-DSTASH_WARNINGS_AS_ERRORS=ON")
    run("cmake", "--build", to, "--target", "consumer", "consumer_c")
    run_consumer(f"{to}/consumer")
    run_consumer(f"{to}/consumer_c")
    shutil.rmtree(to)


WAYS = {"install": install, "find_package": find_package, "pkg_config": pkg_config, "add_subdirectory": add_subdirectory}

if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] not in WAYS:
        sys.exit(__doc__)
    os.makedirs(sys.argv[4], exist_ok=True)
    WAYS[sys.argv[1]](*sys.argv[2:5], sys.argv[5:])
