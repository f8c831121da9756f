#!/usr/bin/env python3
"""Programs of another project, in C and C++, with the shared and the static library: tests/tree/consumer/.
usage: test_consumer.py WAY SOURCE_DIR BUILD_DIR WORK_DIR

WAY  package       find_package in an installed tree that was moved to another place
     pkgconfig     pkg-config, and the README's commands for installing and linking
     recipe        the same with the README's commands from the first on, in a copy without tests, benchmarks and tools: builds the
                   library once more
     subdirectory  add_subdirectory: nothing of flexlab is forced upon the project; a program is compiled there and linked with
                   the library of BUILD_DIR
     subdirectory_long  the same, and all programs with the library as a part of their project, which is compiled once more: at
                   -O1 and by ccache where it is, minutes on two cores

The installed tree is that of BUILD_DIR. Every program must print the same matrix product, and a training run with the
same bits. Skips where pkg-config is missing."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

way = sys.argv[1]
source, build, work = (pathlib.Path(a).resolve() for a in sys.argv[2:5])
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
cache = (build / "CMakeCache.txt").read_text()


def fail(text):
    sys.exit(f"{way}: {text}")


def cached(name):
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.M)
    return found[1] if found else ""


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if result.returncode:
        fail(" ".join(map(str, command)) + f" failed:\n{(result.stdout + result.stderr)[-4000:]}")
    return result.stdout


def check_outputs(outputs):
    """name: what it printed."""
    for name, text in outputs.items():
        lines = text.splitlines()
        loss = float.fromhex(lines[1].split()[-1])
        if lines[0] != "4.5 0 9 0, largest 9" or not lines[1].startswith("80 steps, loss ") or not 0 < loss < 1:
            fail(f"{name} printed {lines}")
        if text != next(iter(outputs.values())):
            fail(f"{name} printed {lines}, another {next(iter(outputs.values()))!r}")
    print(f"{', '.join(outputs)}: {lines}")


def install():
    """Installs the library and its development files, and moves them afterwards."""
    prefix = work / "prefix"
    for component in ("library", "development"):
        run("cmake", "--install", build, "--prefix", work / "first", "--component", component)
    (work / "first").rename(prefix)
    for path in prefix.rglob("*"):
        if path.suffix in {".pc", ".cmake", ".h", ".def"}:
            for stays in (source, build, work):
                if str(stays) in path.read_text():
                    fail(f"{path.relative_to(prefix)} names {stays}")
    found = {p.name for p in prefix.rglob("*")}
    for name in ("tensor.h", "formats.h", "ops.def", "api.h", "version.h", "libflexlab.a", "libflexlab.so", "flexlab.pc",
                 "flexlabConfig.cmake", "flexlabConfigVersion.cmake"):
        if name not in found:
            fail(f"{name} is not installed")
    return prefix


def configure(name, *arguments):
    """Generator and compiler are those of the build at hand; CMake chooses the C++ compiler."""
    return run("cmake", "-S", source / "tests/tree/consumer", "-B", work / name, "-G", cached("CMAKE_GENERATOR"),
               f"-DCMAKE_C_COMPILER={cached('CMAKE_C_COMPILER')}", *arguments)


def programs(name):
    return {p: run(work / name / p) for p in ("c_flexlab", "c_static", "cpp_flexlab", "cpp_static")}


def soname():
    text = run("readelf", "-d", build / "libflexlab.so")
    return re.search(r"SONAME.*\[(.*)\]", text)[1]


header = (source / "include/flexlab/version.h").read_text()
version = [int(re.search(rf"VERSION_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR", "PATCH")]
major, minor, patch = version

if way == "package":
    prefix = install()
    configure("build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", work / "build")
    check_outputs(programs("build"))
    # Another language calls the symbols: the lines of docs/embedding.md.
    python, promised = re.search(r"```python\n(.*?)```\nprints `(.*?)`", (source / "docs/embedding.md").read_text(), re.S).groups()
    folder = next(prefix.rglob("libflexlab.so")).parent
    if run(sys.executable, "-c", python, env={**os.environ, "LD_LIBRARY_PATH": str(folder)}).strip() != promised:
        fail("the lines of docs/embedding.md print something else")
    # find_package distinguishes the same versions as the soname.
    want = f"libflexlab.so.0.{minor}" if major == 0 else f"libflexlab.so.{major}"
    if soname() != want:
        fail(f"soname {soname()}, expected {want}")
    other = f"0.{minor + 1}" if major == 0 else f"{major + 1}"
    for asked, good in ((f"{major}.{minor}", True), (other, False), (f"{major}.{minor}.{patch + 1}", False)):
        (work / "asks").mkdir(exist_ok=True)
        (work / "asks/CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
            f"find_package(flexlab {asked} REQUIRED)\nif(NOT TARGET flexlab::static OR NOT TARGET flexlab::flexlab)\n"
            "message(FATAL_ERROR targets)\nendif()\n")
        result = subprocess.run(["cmake", "-S", work / "asks", "-B", work / f"asks-{asked}", f"-DCMAKE_PREFIX_PATH={prefix}"],
                                capture_output=True, text=True)
        if (result.returncode == 0) != good:
            fail(f"find_package(flexlab {asked}): status {result.returncode}\n{result.stderr[-2000:]}")

    # A program with the shared library needs none of the libraries with which the static one was built.
    for package in ("ZLIB", *(name for name in ("PNG", "JPEG") if f"FL_HAVE_{name}" in (build / "compile_commands.json").read_text())):
        for component in ("shared", "static"):
            (work / "asks/CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES C)\n"
                                                      f"find_package(flexlab REQUIRED COMPONENTS {component})\n")
            result = subprocess.run(["cmake", "-S", work / "asks", "-B", work / f"asks-{package}-{component}", f"-DCMAKE_PREFIX_PATH={prefix}",
                                     f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON"], capture_output=True, text=True)
            if (result.returncode == 0) != (component == "shared") or (result.returncode and not re.search(rf"built\s+with\s[\w,\s]*{package}", result.stderr)):
                fail(f"{component} without {package}: status {result.returncode}\n{result.stderr[-2000:]}")

elif way in ("pkgconfig", "recipe"):
    if not shutil.which("pkg-config"):
        print("skipped: pkg-config is missing (apt-get install pkg-config)")
        sys.exit(77)
    prefix = install()
    folder = next(prefix.rglob("flexlab.pc")).parent
    library = folder.parent
    env = {**os.environ, "PKG_CONFIG_PATH": str(folder), "LD_LIBRARY_PATH": str(library)}
    asked = lambda *flags: run("pkg-config", *flags, "flexlab", env=env).split()
    if asked("--modversion") != [".".join(map(str, version))]:
        fail(f"--modversion says {asked('--modversion')}")
    outputs = {}
    consumer = source / "tests/tree/consumer"
    run("cc", "-c", consumer / "namesakes.c", "-o", work / "namesakes.o")
    for language, compiler, standard in (("c", "cc", "-std=c17"), ("cpp", "c++", "-std=c++17")):
        base = [compiler, standard, consumer / f"consumer.{language}", work / "namesakes.o"]
        run(*base, *asked("--cflags", "--libs"), "-o", work / f"{language}_shared")
        # The static library alone, the rest shared, with what --static says and nothing more.
        libs = ["-l:libflexlab.a" if f == "-lflexlab" else f for f in asked("--static", "--cflags", "--libs")]
        run(*base, *libs, "-o", work / f"{language}_static")
        if "libflexlab" in run("readelf", "-d", work / f"{language}_static"):
            fail(f"{language}_static is linked with the shared library")
        for kind in ("shared", "static"):
            outputs[f"{language}_{kind}"] = run(work / f"{language}_{kind}", env=env)
    check_outputs(outputs)

    # The README's lines, word for word, in a home and a checkout of their own. `pkgconfig` inspects what the first line
    # would build, and continues with the build at hand.
    if "clang" in cached("CMAKE_C_COMPILER"):
        sys.exit(0)  # cc is gcc there, and clang's OpenMP has no static library
    readme = (source / "README.md").read_text()
    program = re.search(r"<!-- program -->\n```c\n(.*?)```", readme, re.S)[1]
    promised = re.search(r"prints `(.*?)`", readme)[1]
    lines = re.search(r"<!-- install -->\n```\n(.*?)```", readme, re.S)[1].splitlines()
    snippet = re.search(r"<!-- install: cmake -->\n```cmake\n(.*?)```", readme, re.S)[1]
    home, checkout = work / "home", work / "checkout"
    checkout.mkdir()
    home.mkdir()
    for name in ("include", "src", "cmake", "CMakeLists.txt", "CMakePresets.json"):
        (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, checkout / name)
    first = lines[0].split(" && ")
    if first != ["cmake --preset install", "cmake --build --preset install"] or not lines[1].startswith("cmake --install build/install "):
        fail(f"expected lines that configure, build and install, found {lines[:2]}")
    if way == "pkgconfig":
        run("bash", "-c", first[0], cwd=checkout)
        steps = run("ninja", "-C", checkout / "build/install", "-t", "commands").splitlines()
        foreign = [s for s in steps if " -c " in s and not re.search(r"-o CMakeFiles/flexlab_(\w+.dir/(src|onnx)|check_formats.dir/cmake)/", s)]
        if foreign or len(steps) < 50:
            fail(f"the README's first line builds {len(steps)} files, and more than the library: {foreign[:3]}")
        shutil.rmtree(checkout / "build")
        (checkout / "build").mkdir()
        (checkout / "build/install").symlink_to(build)
        lines = lines[1:]
    (checkout / "program.c").write_text(program)
    env = {**os.environ, "HOME": str(home)}
    env.pop("PKG_CONFIG_PATH", None)
    script = "set -e\n" + "".join(f"{line} 2>>warnings\n./program\n" if line.startswith("cc ") else f"{line}\n" for line in lines)
    text = run("bash", "-c", script, cwd=checkout, env=env)
    warnings = [line for line in (checkout / "warnings").read_text().splitlines() if "warning" in line]
    if any("'dlopen' in statically linked" not in line for line in warnings):  # docs/embedding.md explains these
        fail(f"the linker warns: {warnings}")
    if text.splitlines().count(promised) != script.count("./program") or script.count("./program") < 2:
        fail(f"expected {promised!r} from each of the README's programs, got:\n{text}")
    (checkout / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(example LANGUAGES C)\n"
                                             "add_executable(program program.c)\n" + snippet)
    run("cmake", "-S", checkout, "-B", checkout / "out", f"-DCMAKE_PREFIX_PATH={home}/.local", env=env)
    run("cmake", "--build", checkout / "out", env=env)
    if run(checkout / "out/program").strip() != promised:
        fail("the program of the README's CMake lines prints something else")
    print("README: installed, linked three ways")

elif way in ("subdirectory", "subdirectory_long"):
    # -O1: this test is about building, not about speed.
    text = configure("build", f"-DFLEXLAB_SOURCE={source}", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1",
                     f"-DFLEXLAB_OPENMP={cached('FLEXLAB_OPENMP') or 'ON'}",
                     *(["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []))
    said = dict(re.findall(r"^-- (targets|folders|flags): ?(.*)$", text, re.M))
    if set(said["targets"].split(";")) != {"flexlab_objects", "flexlab_check_formats", "flexlab_formats_checked", "flexlab_static", "flexlab_shared"}:
        fail(f"targets {said['targets']}")
    if said["folders"] or said["flags"]:
        fail(f"flexlab brings folders {said['folders']!r}, sets flags {said['flags']!r}")
    entries = re.findall(r"^(\w+):(?!INTERNAL|STATIC)\w+=", (work / "build/CMakeCache.txt").read_text(), re.M)
    foreign = [e for e in entries if not re.match(r"FLEXLAB_|flexlab_|consumer_|CMAKE_|OpenMP_|ZLIB_|GIT", e)]
    if foreign:
        fail(f"cache entries without a prefix: {foreign}")
    if "file(INSTALL" in (work / "build/flexlab/cmake_install.cmake").read_text():
        fail("flexlab installs files with a project that did not ask for it")
    if "Total Tests: 0" not in run("ctest", "-N", cwd=work / "build"):
        fail("flexlab brings tests")
    print(said)
    if way == "subdirectory_long" or cached("CMAKE_GENERATOR") != "Ninja":  # other generators cannot build a single object
        run("cmake", "--build", work / "build", "-j", str(os.cpu_count() or 2))
        check_outputs(programs("build"))
    else:
        objects = [f"CMakeFiles/c_flexlab.dir/{name}.c.o" for name in ("consumer", "namesakes")]
        for name in objects:  # to ninja an object depends on the whole library: its command runs alone
            (work / "build" / name).parent.mkdir(parents=True, exist_ok=True)
            run("sh", "-c", run("ninja", "-C", work / "build", "-t", "commands", name).splitlines()[-1], cwd=work / "build")
        run(cached("CMAKE_C_COMPILER"), *(work / "build" / name for name in objects), build / "libflexlab.so", f"-Wl,-rpath,{build}",
            "-o", work / "c_flexlab")
        check_outputs({"c_flexlab": run(work / "c_flexlab")})
else:
    sys.exit(__doc__)
