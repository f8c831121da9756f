#!/usr/bin/env bash
# gpu-check.sh - everything that only a GPU can tell, in one go, from the files of the checkout and what the machine has:
# builds, tests on the device, compute-sanitizer, training with the processor's bits, times. Speeds are written down, not judged.
# Needs no network.
# usage: tools/gpu-check.sh [BUILD_FOLDER [RESULTS_FOLDER]]     results: RESULTS_FOLDER/gpu-NAME.json (bench/results)
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=${1:-build/gpu}
out=${2:-bench/results}
mkdir -p "$build" "$out"
started=$(date +%s)
failed=0
declare -A outcome seconds

say() { printf '\n== %s (%d s)\n' "$*" $(($(date +%s) - started)); }
run() { # run NAME COMMAND...: notes what came of it
    local name=$1 begin=$(date +%s) status=0
    shift
    say "$name"
    "$@" 2>&1 | tee "$build/$name.log" | tail -25
    status=${PIPESTATUS[0]}
    seconds[$name]=$(($(date +%s) - begin))
    case $status in
    0) outcome[$name]=passed ;;
    77) outcome[$name]=skipped ;;
    *) outcome[$name]="failed ($status)"; failed=1 ;;
    esac
    printf -- '-- %s: %s, %d s\n' "$name" "${outcome[$name]}" "${seconds[$name]}"
}

build_all() {
    local generator=()
    command -v ninja >/dev/null && generator=(-G Ninja)
    local how=(-S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DFLEXLAB_CUDA=ON)
    cmake "${how[@]}" || cmake "${how[@]}" -DFLEXLAB_TOOLS=OFF || return # the program needs cJSON, the tests do not
    cmake --build "$build" --parallel
}

run build build_all
[ "${outcome[build]}" = passed ] || exit 1
export FLEXLAB_CUDA_LIBRARY="$root/$build/libflexlab_cuda.so" FLEXLAB_REQUIRE_GPU=1 OMP_WAIT_POLICY=passive
[ "${build#/}" = "$build" ] || FLEXLAB_CUDA_LIBRARY="$build/libflexlab_cuda.so"
flexlab=$build/flexlab
[ -x "$flexlab" ] && run info "$flexlab" info
run ops "$build/tests/test_gpu_ops"
run data "$build/tests/test_nn_data" cuda
run train_small "$build/tests/test_gpu_train"
run shards "$build/tests/test_gpu_shards" long
run train_resnet8 "$build/tests/test_gpu_train" 32 3
run train_resnet20_states "$build/tests/test_gpu_train" 32 20 all resnet20 # the whole state after each of 20 steps
if command -v compute-sanitizer >/dev/null; then
    run memcheck timeout 120 compute-sanitizer --tool memcheck --track-stream-ordered-races all --error-exitcode 9 \
        "$build/tests/test_gpu_ops" 2 1
    run memcheck_train timeout 120 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/test_gpu_train" 8 3
    run synccheck timeout 60 compute-sanitizer --tool synccheck --error-exitcode 9 "$build/tests/test_gpu_ops" 2 1
    run racecheck timeout 120 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/test_gpu_ops" 2 1
else
    outcome[memcheck]='compute-sanitizer is not installed'
    outcome[racecheck]='compute-sanitizer is not installed'
fi

# Training: the losses of the processor and the device, byte by byte, and the speed of each.
train() {
    "$flexlab" compare --model resnet20 --data synthetic:train=2560,test=256 --batch 128 --epochs 1 --no-augment --quiet \
        --formats fp32@cuda,fp16@cuda,bf16@cuda,flex16+5@cuda,dfp16@cuda,fp32,fp16,bf16,flex16+5,dfp16 --force \
        --out "$build/resnet20" && python3 - "$build/resnet20" <<'PYTHON'
import csv, sys
rows = {r["format"].replace(":0", ""): r for r in csv.DictReader(open(sys.argv[1] + "/summary.csv"))}
bad = [f for f in ("fp32", "fp16", "bf16", "flex16+5", "dfp16")
       if any(rows[f][k] != rows[f + "@cuda"][k] for k in ("train_loss_mean", "last_loss_mean", "test_loss_mean"))]
print("20 steps of ResNet-20: " + ("differ: " + ", ".join(bad) if bad else "the same losses on both"))
sys.exit(bool(bad))
PYTHON
}
# Speed: an epoch of ResNet-20 in batches of 512 (bar: at most 2.5 times the time of PyTorch's mixed precision), and products
# (bar: 160 T operations/s for int16 at 4096). Start-up: a process that trains one step (bar: 3 s).
speed() {
    "$flexlab" compare --model resnet20 --data synthetic:train=25600,test=512 --batch 512 --epochs 2 --quiet --force \
        --formats flex16+5@cuda,dfp16@cuda,bf16@cuda,fp16@cuda,fp32@cuda --out "$build/speed"
}
torch_speed() { (cd bench/rivals && python3 torch_gpu.py 512) | tee "$build/torch.json"; return "${PIPESTATUS[0]}"; }
products() { "$build/bench/device_products" cuda | tee "$build/products.json"; return "${PIPESTATUS[0]}"; }
start_up() {
    "$flexlab" train --model mlp2 --data synthetic:train=64,test=64 --batch 64 --epochs 1 --format flex16+5 --device cuda \
        --quiet --force --out "$build/start_up"
}
if [ -x "$flexlab" ]; then
    run train_resnet20 train
    run start_up start_up
    run speed speed
else
    outcome[train_resnet20]='the program could not be built'
fi
run products products
run torch torch_speed

name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | tr -cs 'A-Za-z0-9' - | sed 's/-*$//' | tr A-Z a-z)
file=$out/gpu-${name:-unknown}.json
{
    printf '{\n  "gpu": "%s",\n  "driver": "%s",\n  "nvcc": "%s",\n  "date": "%s",\n  "seconds": %d,\n  "steps": {' \
        "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)" \
        "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)" \
        "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')" "$(date -u +%F)" \
        $(($(date +%s) - started))
    comma=
    for step in "${!outcome[@]}"; do
        printf '%s\n    "%s": {"outcome": "%s", "seconds": %d}' "$comma" "$step" "${outcome[$step]}" "${seconds[$step]:-0}"
        comma=,
    done
    printf '\n  },\n  "pytorch": %s,\n  "products": %s,\n  "images_per_second": {' \
        "$(grep -h '^{' "$build/torch.json" 2>/dev/null || echo null)" \
        "$(if [ "${outcome[products]}" = passed ]; then cat "$build/products.json"; else echo null; fi)"
    comma=
    if [ -f "$build/speed/summary.csv" ]; then
        while IFS=$'\t' read -r format speed; do
            printf '%s\n    "%s": %s' "$comma" "$format" "$speed"
            comma=,
        done < <(python3 -c 'import csv,sys
for r in csv.DictReader(open(sys.argv[1])): print(r["format"], r["images_per_second"], sep="\t")' "$build/speed/summary.csv")
    fi
    printf '\n  }\n}\n'
} >"$file"
say "written: $file"
cat "$file"
exit $failed
