#!/usr/bin/env bash
# gpu-check.sh - everything that only a GPU can tell, in one go. Speeds are written down, not judged. Needs no network.
set -uo pipefail
usage() {
    cat <<'TEXT'
usage: tools/gpu-check.sh [--rehearse] [BUILD_FOLDER [RESULTS_FOLDER]]        build/gpu, bench/results

Builds the library and its CUDA backend, with machine code for sm_80, sm_90 and the GPU of this machine. Then, step by step:
- without a GPU: machine code against PTX, instructions of training steps, mistakes in kernels that must be noticed (on the
  machine that executes PTX), messages where there is no device;
- on the GPU, beside the processor, byte for byte: every operation; products of all sizes, in class fast against the sums of
  an A100 or an H100 if it is one; whole trainings in the five formats, in floats by parameters (e4m3fn, e5m2, e6m5), in
  narrow formats and blocks, under the policies O1, O2 and dfp16; descriptions and shadow formats; shards; ranks (mpirun);
  recurrent networks, gpt, text, tokens, data sets, weights, loss scales, telemetry, WGANs, programs of ONNX and .tflite;
  `flexlab train`, `wgan` and `what-if`;
- compute-sanitizer: memcheck, synccheck, racecheck and initcheck of operations, racecheck of products, memcheck of a training;
- times of training steps of ResNet-20 and of products, in five formats and in class fast (bf16, fp16, tf32), beside their
  floors (bytes, instructions, tensor cores, by the properties of the device: tools/gpu_report.py), and of PyTorch with mixed
  precision, cuBLAS and cuDNN, in the same run.
What is not installed is named and left out: compute-sanitizer comes with CUDA or PyPI's nvidia-cuda-sanitizer-api, cuobjdump
with CUDA or PyPI's nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, networks of ONNX and .tflite from FLEXLAB_DATA/networks.

Writes RESULTS_FOLDER/gpu-NAME.json and the tables of docs/gpu.md, RESULTS_FOLDER/gpu-NAME.md. BUILD_FOLDER/STEP.log has
what each step printed, BUILD_FOLDER/outcomes what came of each. Exit status 0: nothing failed; 1: something did; 77: no GPU or
no nvcc (without a GPU it builds, runs what needs none, and says so).

--rehearse: the steps of a GPU on the machine that executes PTX, in small sizes, with what BUILD_FOLDER has, without
compute-sanitizer and PyTorch. Logs and times, which are those of a processor, go to RESULTS_FOLDER.
TEXT
}
rehearse=
[ "${1:-}" = --rehearse ] && rehearse=1 && shift
case ${1:-} in -h | --help) usage; exit 0 ;; -*) usage >&2; exit 1 ;; esac
[ -n "$rehearse" ] && [ $# -ne 2 ] && { usage >&2; exit 1; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${1:-$root/build/gpu}")
out=$(realpath -m "${2:-$root/bench/results}")
cd "$root" || exit 1
logs=$build
[ -n "$rehearse" ] && logs=$out
command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || [ -n "$rehearse" ] || {
    echo "gpu-check: no nvcc in PATH, CUDA_HOME or /usr/local/cuda"
    exit 77
}
mkdir -p "$build" "$out"
: >"$logs/outcomes"
failed=0

run() { # run NAME SECONDS COMMAND...: notes what came of it
    local name=$1 limit=$2 begin status=0 came
    begin=$(date +%s)
    shift 2
    printf '\n== %s\n' "$name"
    if [ "$(type -t "$1")" = function ]; then "$@"; else timeout "$limit" "$@"; fi >"$logs/$name.log" 2>&1
    status=$?
    tail -n 12 "$logs/$name.log"
    case $status in
    0) came=passed ;;
    77) came=skipped ;;
    *) came="failed ($status)"; failed=1 ;;
    esac
    printf '%s\t%s\t%d\n' "$name" "$came" $(($(date +%s) - begin)) >>"$logs/outcomes"
    printf -- '-- %s: %s\n' "$name" "$came"
    [ "$came" = passed ]
}

gpu=$(python3 tools/gpu_report.py capability) || gpu=
build_all() {
    local generator=() how architectures="80;90"
    case $gpu in '' | 80 | 90) ;; *) architectures="$architectures;$gpu" ;; esac
    command -v ninja >/dev/null && generator=(-G Ninja)
    how=(-S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DFLEXLAB_CUDA=ON "-DFLEXLAB_CUDA_ARCHITECTURES=$architectures")
    cmake "${how[@]}" || cmake "${how[@]}" -DFLEXLAB_TOOLS=OFF || return # the program needs cJSON, the tests do not
    cmake --build "$build" --parallel
}
of_ctest() { # a test that ctest has skipped, or does not have, is skipped here
    local said
    said=$(ctest --test-dir "$build" -R "^$1\$" --timeout 3600 --output-on-failure) || { echo "$said"; return 1; }
    echo "$said"
    case $said in *"(Skipped)"* | *"No tests were found"*) return 77 ;; esac
}
export OMP_WAIT_POLICY=passive
if [ -z "$rehearse" ]; then
    run build 3600 build_all || exit 1
    for name in gpu_static gpu_load ptx_machine ptx_mutants ptx_counts gpu_products_ptx; do
        run $name 3600 of_ctest $name
    done
    if [ -z "$gpu" ]; then
        echo "gpu-check: no GPU here (libcuda.so.1 finds none): tests on a device, compute-sanitizer and times are left out"
        [ "$failed" = 0 ] && exit 77
        exit 1
    fi
    export FLEXLAB_CUDA_LIBRARY="$build/libflexlab_cuda.so"
    gpus=$(python3 tools/gpu_report.py count)
else
    export FLEXLAB_CUDA_LIBRARY="$build/tests/libflexlab_ptx.so" FLEXLAB_PTX_GPU=h100 FLEXLAB_PTX_BYTES=$((1 << 26))
    gpu=90 gpus=2
fi
export FLEXLAB_REQUIRE_GPU=1
either() { [ -z "$rehearse" ] && echo "$1" || echo "$2"; } # a size on a GPU, and in a rehearsal
tests=$build/tests

# Beside the processor. What a step means is said at the head of its test.
# shellcheck disable=SC2046,SC2086 # words
{
    run ops 1200 "$tests/test_gpu_ops" 1 $(either 24 "1 add")
    run transfers 600 "$tests/test_gpu_ops" 4 1 transfers $(either "" fp16)
    run products_of_all_sizes 1200 "$tests/test_gpu_products" 1 $(either 300 "4 matmul")
    run products_large 600 "$tests/test_gpu_products" 1 0 $(either large "numbers bf16")
    case $gpu in
    80) run products_fast 600 "$tests/test_gpu_products" 4 48 fast a100 ;;
    90) run products_fast 600 "$tests/test_gpu_products" 4 $(either 48 2) fast h100 ;;
    *) printf 'products_fast\tnobody has recorded how tensor cores of compute capability %s sum\t0\n' "$gpu" | tee -a "$logs/outcomes" ;;
    esac
    run train_small 600 "$tests/test_gpu_train" $(either "" "2 2 flex16+5 mlp2")
    run train_resnet8 900 "$tests/test_gpu_train" $(either "32 3" "2 2 fp16 mlp2")
    run train_resnet20 900 "$tests/test_gpu_train" $(either "32 20 all resnet20" "2 2 bf16 mlp2") # the whole state after each of 20 steps
    for format in e4m3fn e5m2 e6m5 flex8+5 dfp8; do
        run "train_$format" 600 "$tests/test_gpu_train" $(either "32 3" "2 2") $format $(either "" mlp2)
    done
    for preset in O1 O2 dfp16; do
        run "train_$preset" 600 "$tests/test_gpu_train" $(either "32 3" "2 2") "preset $preset;" $(either "" mlp2)
    done
    run train_blocks 600 "$tests/test_gpu_train" $(either "8 3" "2 2") \
        "variant flex16+5; if-any @product operands=nvfp4:stochastic:hadamard,nvfp4:hadamard:square;" $(either "" mlp2)
    run train_mixed 600 "$tests/test_gpu_train" $(either "8 3" "2 2") \
        "variant bf16; if-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32;" $(either "" mlp2)
    run describe 900 "$tests/test_gpu_describe" $(either long shadows)
    run shards 1200 "$tests/test_gpu_shards" $(either long "")
    for name in recurrent nn_recurrent nn_data nonfinite nn_tokens nn_gpt nn_text wgan nn_telemetry_calls nn_loss_scale nn_weights; do
        run $name 900 "$tests/test_$name" cuda
    done
    run program_networks 900 "$tests/test_program_networks" cuda $(either "" wake-word.onnx)
    run program_quantised 600 "$tests/test_program_quantised" cuda 1 $(either 500 5)
}
if [ -x "$build/flexlab" ]; then
    # shellcheck disable=SC2046 # no word or one
    run commands 1800 python3 tests/gpu/ptx/test_ptx_trainings.py "$build/flexlab" "$FLEXLAB_CUDA_LIBRARY" $(either long "")
    if [ -x "$tests/train_ranks" ] && [ -e "$build/libflexlab_mpi.so" ] && command -v mpirun >/dev/null; then
        run ranks 1800 python3 tests/group/test_gpu_ranks.py "$tests/train_ranks" "$build/flexlab" "$FLEXLAB_CUDA_LIBRARY" "GPUS=$gpus" \
            "$(command -v mpirun)=$build/libflexlab_mpi.so"
    else
        printf 'ranks\tno mpirun\t0\n' | tee -a "$logs/outcomes"
    fi
else
    printf 'commands\tthe program needs cJSON\t0\n' | tee -a "$logs/outcomes"
fi

sanitizer=$(command -v compute-sanitizer || python3 -c 'import glob, sys
print(next((f for p in sys.path for f in glob.glob(p + "/nvidia/*/bin/compute-sanitizer") + glob.glob(p + "/nvidia/cuda_sanitizer_api/bin/compute-sanitizer")), ""))')
if [ -n "$rehearse" ]; then
    :
elif [ -n "$sanitizer" ]; then
    for tool in "memcheck --track-stream-ordered-races all" synccheck racecheck initcheck; do
        # shellcheck disable=SC2086 # words
        run "${tool%% *}" 600 "$sanitizer" --error-exitcode 9 --tool $tool "$tests/test_gpu_ops" 2 1
    done
    run racecheck_products 900 "$sanitizer" --error-exitcode 9 --tool racecheck "$tests/test_gpu_products" 1 10
    run memcheck_train 600 "$sanitizer" --error-exitcode 9 --tool memcheck "$tests/test_gpu_train" 8 3 flex16+5
else
    printf 'compute-sanitizer\tnot installed\t0\n' | tee -a "$logs/outcomes"
fi

# Times: every figure of one run, the rivals among them. start_up: a process that trains one step.
start_up() {
    "$build/flexlab" train --model mlp2 --data synthetic:train=64,test=64 --batch 64 --epochs 1 --format flex16+5 --device cuda \
        --quiet --force --out "$logs/start_up"
}
[ -x "$build/flexlab" ] && run start_up 60 start_up
# shellcheck disable=SC2046 # words
{
    run steps 900 "$build/bench/device_steps" cuda $(either 128 "2 1")
    run products 900 "$build/bench/device_products" cuda $(either "" 64)
}
torch() { (cd bench/rivals && python3 torch_gpu.py 128); }
[ -z "$rehearse" ] && run pytorch 900 torch
python3 tools/gpu_report.py "$(either write rehearse)" "$logs" "$out" || failed=1
exit $failed
