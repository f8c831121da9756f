#!/usr/bin/env bash
# gpu-check.sh - everything that only a GPU can tell, in one go. Speeds are written down, not judged. Needs no network.
set -uo pipefail
usage() {
    cat <<'TEXT'
usage: tools/gpu-check.sh [BUILD_FOLDER [RESULTS_FOLDER]]        build/gpu, bench/results

Builds the library and its CUDA backend, with machine code for the GPU of this machine; compares every operation, products
of all sizes, data sets and whole trainings on the device with the processor, byte for byte; runs the tests again with
mistakes in the kernels (on the machine that executes PTX); runs compute-sanitizer; times training steps and products
beside their floors (bytes over bandwidth, instructions over the issue rate, by the properties of the device); and times
PyTorch with mixed precision, cuBLAS and cuDNN by it, in the same run. What is not installed is named and left out:
compute-sanitizer comes with CUDA or PyPI's nvidia-cuda-sanitizer-api, cuobjdump with CUDA or PyPI's
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm.

Writes RESULTS_FOLDER/gpu-NAME.json and the tables of docs/gpu.md, RESULTS_FOLDER/gpu-NAME.md. BUILD_FOLDER/STEP.log has
what each step printed. Exit status 0: all passed; 1: something failed; 77: no GPU or no nvcc (without a GPU it builds, runs
what needs none, and says so).
TEXT
}
case ${1:-} in -h | --help) usage; exit 0 ;; -*) usage >&2; exit 1 ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${1:-$root/build/gpu}")
out=$(realpath -m "${2:-$root/bench/results}")
cd "$root"
command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo "gpu-check: no nvcc in PATH, CUDA_HOME or /usr/local/cuda"; exit 77; }
mkdir -p "$build" "$out"
: >"$build/outcomes"
failed=0

run() { # run NAME SECONDS COMMAND...: notes what came of it
    local name=$1 limit=$2 begin=$(date +%s) status=0 came
    shift 2
    printf '\n== %s\n' "$name"
    if [ "$(type -t "$1")" = function ]; then "$@"; else timeout "$limit" "$@"; fi >"$build/$name.log" 2>&1
    status=$?
    tail -n 12 "$build/$name.log"
    case $status in
    0) came=passed ;;
    77) came=skipped ;;
    *) came="failed ($status)"; failed=1 ;;
    esac
    printf '%s\t%s\t%d\n' "$name" "$came" $(($(date +%s) - begin)) >>"$build/outcomes"
    printf -- '-- %s: %s\n' "$name" "$came"
    [ "$came" = passed ]
}

gpu=$(python3 tools/gpu_report.py capability) || gpu=
build_all() {
    local generator=() how
    command -v ninja >/dev/null && generator=(-G Ninja)
    how=(-S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DFLEXLAB_CUDA=ON "-DFLEXLAB_CUDA_ARCHITECTURES=${gpu:-80;90}")
    cmake "${how[@]}" || cmake "${how[@]}" -DFLEXLAB_TOOLS=OFF || return # the program needs cJSON, the tests do not
    cmake --build "$build" --parallel
}
run build 3600 build_all || exit 1
export OMP_WAIT_POLICY=passive
on_ptx() { ctest --test-dir "$build" -R '^(gpu_static|gpu_load|ptx_machine|ptx_mutants|ptx_counts|gpu_products_ptx_banks)$' --output-on-failure; }
run without_gpu 1800 on_ptx
if [ -z "$gpu" ]; then
    echo "gpu-check: no GPU here (nvidia-smi or libcuda.so.1 finds none): tests on a device, compute-sanitizer and times are left out"
    [ "$failed" = 0 ] && exit 77
    exit 1
fi

export FLEXLAB_CUDA_LIBRARY="$build/libflexlab_cuda.so" FLEXLAB_REQUIRE_GPU=1
run ops 600 "$build/tests/test_gpu_ops"
run products_of_all_sizes 600 "$build/tests/test_gpu_products" 1 300
run products_large 600 "$build/tests/test_gpu_products" 1 0 large
run data 600 "$build/tests/test_nn_data" cuda
run wgan 600 "$build/tests/test_wgan" cuda
run train_small 600 "$build/tests/test_gpu_train"
run train_resnet8 600 "$build/tests/test_gpu_train" 32 3
run shards 600 "$build/tests/test_gpu_shards" long
run train_resnet20 600 "$build/tests/test_gpu_train" 32 20 all resnet20 # the whole state after each of 20 steps
sanitizer=$(command -v compute-sanitizer || python3 -c 'import glob, sys
print(next((f for p in sys.path for f in glob.glob(p + "/nvidia/*/bin/compute-sanitizer") + glob.glob(p + "/nvidia/cuda_sanitizer_api/bin/compute-sanitizer")), ""))')
if [ -n "$sanitizer" ]; then
    for tool in "memcheck --track-stream-ordered-races all" synccheck racecheck initcheck; do
        # shellcheck disable=SC2086 # words
        run "${tool%% *}" 300 "$sanitizer" --error-exitcode 9 --tool $tool "$build/tests/test_gpu_ops" 2 1
    done
    run memcheck_train 300 "$sanitizer" --error-exitcode 9 --tool memcheck "$build/tests/test_gpu_train" 8 3
else
    printf 'compute-sanitizer\tnot installed\t0\n' | tee -a "$build/outcomes"
fi

# Times: every figure of one run, the rivals among them. start_up: a process that trains one step.
start_up() {
    "$build/flexlab" train --model mlp2 --data synthetic:train=64,test=64 --batch 64 --epochs 1 --format flex16+5 --device cuda \
        --quiet --force --out "$build/start_up"
}
[ -x "$build/flexlab" ] && run start_up 60 start_up
run steps 600 "$build/bench/device_steps" cuda 128
run products 600 "$build/bench/device_products" cuda
torch() { (cd bench/rivals && python3 torch_gpu.py 128); }
run pytorch 600 torch
python3 tools/gpu_report.py write "$build" "$out" || failed=1
exit $failed
