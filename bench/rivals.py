"""The rival libraries: where they are found, how they are installed, how their workers are built. A missing one has a
reason, never an error."""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
DEBIAN = ["libopenblas-dev", "libdnnl-dev"]
# oneDNN twice: the newest, whose threads are TBB and SYCL's, and the last one with OpenMP.
WHEELS = [
    "mkl",
    "mkl-include",
    "mkl-devel",
    "onednn",
    "onednn-devel",
    "intel-opencl-rt",
    "torch",
    "qtorch",
    "onnx",
    "onnxruntime",
    "numpy",
    "ninja",
    "setuptools",
]
OPENMP_ONEDNN = "onednn-cpu-gomp"
CORE_TYPES = ["SKYLAKEX", "ZEN", "HASWELL"]


@dataclasses.dataclass
class Program:
    name: str
    argv: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    version: str = ""
    skip: str = ""
    pinned: bool = False  # its threads are as many as the processors that it may use


class Rivals:
    """dry: names only, nothing is built."""

    def __init__(self, root, compiler="cc", log=lambda text: None, dry=False):
        self.work = pathlib.Path(root) / "build" / "rivals"
        self.venv = pathlib.Path(os.environ.get("FLEXLAB_RIVALS") or self.work / "venv")
        self.compiler, self.log, self.dry = compiler, log, dry
        self.built = {}

    # --- installing -----------------------------------------------------------------------------------------
    def _run(self, *command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            self.log(f"failed: {shlex.join(map(str, command))}\n{(done.stderr or done.stdout).strip()[-400:]}")
        return done.returncode == 0

    def install(self):
        """Fills the virtual environment once; Debian packages only if no password is needed."""
        missing = (
            [p for p in DEBIAN if subprocess.run(["dpkg", "-s", p], capture_output=True).returncode]
            if shutil.which("dpkg")
            else []
        )
        if missing and os.geteuid() == 0 and shutil.which("apt-get"):
            self.log("installing " + " ".join(missing))
            self._run("apt-get", "update", "-qq")
            self._run("apt-get", "install", "-y", "-qq", *missing)
        if not os.environ.get("FLEXLAB_RIVALS") and not (self.venv / "complete").exists():
            self.log(f"installing {' '.join(WHEELS)} into {self.venv} (some gigabytes, once)")
            self.venv.parent.mkdir(parents=True, exist_ok=True)
            if self._run(sys.executable, "-m", "venv", self.venv) and all(
                [self._run(self.venv / "bin/pip", "install", "-q", wheel) for wheel in WHEELS]
            ):
                (self.venv / "complete").touch()
        if not (self.work / "onednn-openmp" / "libdnnl.so.3").exists() and (self.venv / "bin/pip").exists():
            self._fetch_openmp_onednn()

    def _fetch_openmp_onednn(self):
        """Its library has the name of the newer one's, so it is unpacked into a folder of its own."""
        folder = self.work / "onednn-openmp"
        folder.mkdir(parents=True, exist_ok=True)
        if self._run(self.venv / "bin/pip", "download", "-q", "--no-deps", "-d", folder, OPENMP_ONEDNN):
            for wheel in folder.glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    for name in archive.namelist():
                        if name.endswith("/libdnnl.so.3"):
                            (folder / "libdnnl.so.3").write_bytes(archive.read(name))
                wheel.unlink()

    # --- building -------------------------------------------------------------------------------------------
    def _build(self, name, source, flags, install):
        """Compiles a C worker; returns a Program with a reason if that fails."""
        if self.dry:
            return name, ""
        if name not in self.built:
            (self.work / "bin").mkdir(parents=True, exist_ok=True)
            target = self.work / "bin" / name
            command = [
                self.compiler,
                "-std=gnu17",
                "-O2",
                f"-I{HERE}",
                HERE / "rivals" / source,
                HERE / "worker.c",
                "-o",
                target,
                *flags,
                "-lm",
            ]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            skip = f"not found; install with: {install}" if done.returncode else ""
            self.built[name] = (target, skip)
        return self.built[name]

    def _wheel(self, *packages):
        return f"{self.venv}/bin/pip install {' '.join(packages)}"

    def _wheel_version(self, package):
        for info in sorted(self.venv.glob(f"lib/python3*/site-packages/{package}-*.dist-info")):
            return info.name.removeprefix(package + "-").removesuffix(".dist-info")
        return ""

    @staticmethod
    def _debian_version(package):
        if not shutil.which("dpkg-query"):
            return ""
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
        return done.stdout.strip()

    def openblas(self, core_type):
        target, skip = self._build("openblas", "openblas.c", ["-lopenblas"], "apt-get install libopenblas-dev")
        return Program(
            f"openblas {core_type.lower()}",
            [str(target)],
            {"OPENBLAS_CORETYPE": core_type},
            self._debian_version("libopenblas-dev"),
            skip,
        )

    def mkl(self):
        library = self.venv / "lib"
        names = [f"libmkl_{part}.so" for part in ("intel_lp64", "intel_thread", "core")]
        parts = [next(iter(sorted(library.glob(name + "*"))), library / name) for name in names]
        target, skip = self._build(
            "mkl",
            "mkl.c",
            [f"-I{self.venv}/include", *parts, library / "libiomp5.so", f"-Wl,-rpath,{library}"],
            self._wheel("mkl-devel", "mkl-include"),
        )
        return Program("mkl", [str(target)], {}, self._wheel_version("mkl"), skip)

    def onednn(self):
        """The available builds of oneDNN: each is a contestant, and the best one counts."""
        library, headers = self.venv / "lib", f"-I{self.venv}/include"
        newest, newest_skip = self._build(
            "onednn",
            "onednn.c",
            [headers, library / "libdnnl.so.3", f"-Wl,-rpath,{library}", "-Wl,--allow-shlib-undefined"],
            self._wheel("onednn", "onednn-devel"),
        )
        folder = self.work / "onednn-openmp"
        openmp, openmp_skip = self._build(
            "onednn-openmp",
            "onednn.c",
            [headers, folder / "libdnnl.so.3", f"-Wl,-rpath,{folder}"],
            "./dev bench without --no-install",
        )
        debian, debian_skip = self._build("onednn-debian", "onednn.c", ["-ldnnl"], "apt-get install libdnnl-dev")
        return [
            Program(
                "onednn",
                [str(newest)],
                {"LD_LIBRARY_PATH": str(library), "OCL_ICD_FILENAMES": str(library / "libintelocl.so")},
                self._wheel_version("onednn"),
                newest_skip,
                True,
            ),
            Program("onednn openmp", [str(openmp)], {}, "2023.2.0 (3.2)", openmp_skip),
            Program("onednn debian", [str(debian)], {}, self._debian_version("libdnnl-dev"), debian_skip),
        ]

    def python(self, name, script, package, *arguments):
        python = self.venv / "bin/python"
        version = self._wheel_version(package)
        skip = "" if python.exists() and version else f"not found; install with: {self._wheel(package)}"
        return Program(
            name,
            [str(python), str(HERE / "rivals" / script), *arguments],
            {"TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor")},
            version,
            skip,
        )
