# The CUDA backend without a GPU: the objects that nvcc made for libflexlab_cuda.so, linked with a runtime that executes
# their PTX (ptx.h). Included by tests/CMakeLists.txt where there is a backend and a C++ compiler. A run with a finding
# ends with status 98, so that every test with such a library fails by it.
include(CheckCXXCompilerFlag)
file(GLOB ptx_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu/ptx/*.cpp)
set(ptx_flags -O3 -Wall -Wextra -ffp-contract=off -fvisibility=hidden)
check_cxx_compiler_flag(-march=native FLEXLAB_HAVE_MARCH_NATIVE) # it runs where it is built
if(FLEXLAB_HAVE_MARCH_NATIVE)
    list(APPEND ptx_flags -march=native)
endif()
if(FLEXLAB_WERROR)
    list(APPEND ptx_flags -Werror)
endif()
get_filename_component(ptx_cuda ${FLEXLAB_NVCC} DIRECTORY)
find_path(FLEXLAB_CUDA_INCLUDE cuda_runtime_api.h HINTS ${ptx_cuda}/../include ${ptx_cuda}/../targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
mark_as_advanced(FLEXLAB_CUDA_INCLUDE)
# The options of C files do not apply to the machine, nor do sanitizers.
function(ptx_target target)
    set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "${ptx_flags}" LINK_OPTIONS "" CXX_STANDARD 17
                          CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE CXX)
endfunction()
add_library(ptx_objects OBJECT ${ptx_sources})
ptx_target(ptx_objects)
target_include_directories(ptx_objects SYSTEM PRIVATE ${FLEXLAB_CUDA_INCLUDE})

set_source_files_properties(${gpu_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(flexlab_ptx MODULE ${gpu_objects} $<TARGET_OBJECTS:ptx_objects>)
ptx_target(flexlab_ptx)
add_dependencies(flexlab_ptx flexlab_cuda) # which builds the objects
target_link_libraries(flexlab_ptx PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(flexlab_ptx PRIVATE -Wl,--no-undefined -Wl,-Bsymbolic -Wl,-z,nodelete)

# ptx_test(NAME TARGET ARGUMENTS [ENVIRONMENT NAME=VALUE...]): TARGET on the machine. Each of the quick suite reports the
# kernels that it launches.
set(ptx_reports ${CMAKE_CURRENT_BINARY_DIR}/ptx_reports)
file(MAKE_DIRECTORY ${ptx_reports})
set(ptx_quick "")
function(ptx_test name target)
    cmake_parse_arguments(PARSE_ARGV 2 given "" "" "ENVIRONMENT")
    if(NOT TARGET ${target}) # without the program
        return()
    endif()
    add_test(NAME ${name} COMMAND ${target} ${given_UNPARSED_ARGUMENTS})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800 FAIL_REGULAR_EXPRESSION "ptx: FINDING" ENVIRONMENT
        "OMP_WAIT_POLICY=passive;FLEXLAB_REQUIRE_GPU=1;FLEXLAB_CUDA_LIBRARY=$<TARGET_FILE:flexlab_ptx>;FLEXLAB_PTX_SEED=5;${given_ENVIRONMENT}")
    if(name MATCHES "_long$")
        set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 3600)
    else()
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT FLEXLAB_PTX_REPORT=${ptx_reports}/${name}.report)
        set(ptx_quick ${ptx_quick} ${name} PARENT_SCOPE)
    endif()
    add_dependencies(${target} flexlab_ptx)
endfunction()

# Seed, and series of writes of each operation in each of some twenty formats.
set(ptx_all FLEXLAB_PTX_CHECKS=diverge,nan,registers,races FLEXLAB_PTX_BYTES=134217728)
ptx_test(gpu_ops_ptx_checked test_gpu_ops 2 1 ENVIRONMENT FLEXLAB_PTX_CHECKS=nan,registers,races FLEXLAB_PTX_BYTES=134217728)
ptx_test(gpu_ops_ptx_pinned test_gpu_ops 4 1 transfers ENVIRONMENT FLEXLAB_PTX_CHECKS=pinned)
# As if CUDA did not say that all memory is pinned.
ptx_test(gpu_ops_ptx_unknown test_gpu_ops 5 1 transfers ENVIRONMENT FLEXLAB_PTX_CHECKS=pinned FLEXLAB_PTX_FAIL=cudaPointerGetAttributes@0@1)
ptx_test(gpu_ops_ptx_long test_gpu_ops 7 24)
ptx_test(gpu_ops_ptx_checked_long test_gpu_ops 8 6 ENVIRONMENT ${ptx_all})

ptx_test(gpu_products_ptx test_gpu_products 1 60 ENVIRONMENT FLEXLAB_PTX_CHECKS=banks)
ptx_test(gpu_products_ptx_checked test_gpu_products 4 15 ENVIRONMENT ${ptx_all})
ptx_test(gpu_products_ptx_long test_gpu_products 3 600)
ptx_test(gpu_products_ptx_checked_long test_gpu_products 2 60 ENVIRONMENT ${ptx_all})
ptx_test(gpu_products_ptx_banks_long test_gpu_products 1 60 ENVIRONMENT FLEXLAB_PTX_CHECKS=banks)
ptx_test(gpu_products_large_ptx test_gpu_products 1 0 large ENVIRONMENT FLEXLAB_PTX_CHECKS=banks)
ptx_test(gpu_products_99_kib_ptx test_gpu_products 1 0 large ENVIRONMENT FLEXLAB_PTX_SHARED_KIB=99)

foreach(gpu a100 h100)
    ptx_test(gpu_products_fast_${gpu}_ptx test_gpu_products 4 8 fast ${gpu} ENVIRONMENT FLEXLAB_PTX_GPU=${gpu} ${ptx_all})
    ptx_test(gpu_products_fast_${gpu}_ptx_long test_gpu_products 5 48 fast ${gpu} ENVIRONMENT FLEXLAB_PTX_GPU=${gpu} ${ptx_all})
endforeach()

set(ptx_small FLEXLAB_PTX_BYTES=67108864)
set(ptx_blocks "variant flex16+5; if-any @product operands=nvfp4:stochastic:hadamard,nvfp4:hadamard:square;")
ptx_test(gpu_train_ptx test_gpu_train 8 2 ENVIRONMENT ${ptx_small})
ptx_test(gpu_train_narrow_ptx test_gpu_train 8 2 flex8+5 ENVIRONMENT ${ptx_small})
ptx_test(gpu_train_minifloat_ptx test_gpu_train 8 2 e4m3fn ENVIRONMENT ${ptx_small})
ptx_test(gpu_train_blocks_ptx test_gpu_train 8 3 "${ptx_blocks}" ENVIRONMENT ${ptx_small})
ptx_test(gpu_train_mixed_ptx test_gpu_train 8 2 "variant bf16; if-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32;"
         ENVIRONMENT ${ptx_small})
foreach(preset O1 O2 dfp16)
    ptx_test(gpu_train_${preset}_ptx test_gpu_train 8 2 "preset ${preset}$<SEMICOLON>" ENVIRONMENT
             FLEXLAB_PTX_CHECKS=nan,registers,races ${ptx_small})
endforeach()
ptx_test(gpu_train_ptx_long test_gpu_train 32 3 ENVIRONMENT ${ptx_small})
ptx_test(gpu_train_ptx_checked_long test_gpu_train 8 2 ENVIRONMENT FLEXLAB_PTX_CHECKS=diverge,nan,registers,races
         ${ptx_small}) # the test has a set that does not fit into so much

set(ptx_describe FLEXLAB_PTX_CHECKS=nan,registers,races FLEXLAB_PTX_BYTES=268435456)
ptx_test(gpu_describe_ptx test_gpu_describe ENVIRONMENT ${ptx_describe})
ptx_test(gpu_describe_ptx_long test_gpu_describe long ENVIRONMENT ${ptx_describe})

ptx_test(gpu_telemetry_ptx test_gpu_telemetry ENVIRONMENT FLEXLAB_PTX_BYTES=268435456)
ptx_test(gpu_telemetry_ptx_long test_gpu_telemetry long ENVIRONMENT ${ptx_describe})

ptx_test(gpu_late_ptx test_gpu_late 6) # each sixth call
ptx_test(gpu_late_ptx_long test_gpu_late)

ptx_test(gpu_shards_ptx test_gpu_shards ENVIRONMENT ${ptx_small})
ptx_test(gpu_shards_ptx_long test_gpu_shards long ENVIRONMENT FLEXLAB_PTX_CHECKS=diverge,nan,registers,races
         FLEXLAB_PTX_BYTES=268435456)

# What uses a device beside them. Lanes that diverge take four times as long: in two of them only in
# their long forms.
set(ptx_beside FLEXLAB_PTX_CHECKS=diverge,nan,registers,races FLEXLAB_PTX_BYTES=268435456)
foreach(name recurrent nn_recurrent nn_data nonfinite nn_tokens nn_gpt nn_text wgan nn_telemetry_calls)
    ptx_test(${name}_ptx test_${name} cuda ENVIRONMENT ${ptx_beside})
endforeach()
foreach(name nn_loss_scale nn_weights)
    ptx_test(${name}_ptx test_${name} cuda ENVIRONMENT FLEXLAB_PTX_CHECKS=nan,registers,races FLEXLAB_PTX_BYTES=268435456)
    ptx_test(${name}_ptx_long test_${name} cuda ENVIRONMENT ${ptx_beside})
endforeach()
ptx_test(program_networks_ptx test_program_networks cuda mtcnn-pnet.onnx mtcnn-rnet.onnx wake-word.onnx
         tiny-anomaly-fp32.tflite tiny-resnet8-fp32.tflite tiny-keywords-fp32.tflite)
list(REMOVE_ITEM ptx_quick program_networks_ptx) # which needs FLEXLAB_DATA: the others launch all kernels without it
ptx_test(program_networks_ptx_long test_program_networks cuda)
ptx_test(program_quantised_ptx test_program_quantised cuda 1 50)
set_tests_properties(support PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive;FLEXLAB_CUDA_LIBRARY=$<TARGET_FILE:flexlab_ptx>")
add_dependencies(test_support flexlab_ptx)

# That the machine can fail, and the rules that processors and devices share. Their PTX is packed in another way than the library's, where nvcc can.
set(ptx_packed "")
if(FLEXLAB_NVCC_VERSION VERSION_GREATER_EQUAL 12.8)
    set(ptx_packed --compress-mode=speed)
endif()
foreach(name machine rules)
    set(object ${PROJECT_BINARY_DIR}/cuda/test_ptx_${name}.o)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/gpu/ptx/test_ptx_${name}.cu)
    add_custom_command(OUTPUT ${object} VERBATIM DEPENDS ${source} DEPFILE ${object}.d
        COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} ${FLEXLAB_NVCC} ${FLEXLAB_NVCC_HOST} -std=c++17 -O2 -fmad=false ${ptx_packed}
                -gencode arch=compute_80,code=compute_80 -cudart none -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
                -I${PROJECT_SOURCE_DIR}/tests -I${FLEXLAB_GENERATED}/include -Wno-deprecated-gpu-targets -Xcompiler -ffp-contract=off
                -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
        COMMENT "Building CUDA object cuda/test_ptx_${name}.o")
    add_executable(test_ptx_${name} ${object} $<TARGET_OBJECTS:ptx_objects>)
    ptx_target(test_ptx_${name})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_link_libraries(test_ptx_${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    add_test(NAME ptx_${name} COMMAND test_ptx_${name})
    set_tests_properties(ptx_${name} PROPERTIES TIMEOUT ${patience})
endforeach()

# Kernels that no test launches, counts of a training step, machine code against PTX; that mistakes of kernels are noticed, and what commands do where a call of the runtime fails.
if(Python3_FOUND)
    function(ptx_script name script)
        add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/${script} ${ARGN})
        set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3600)
        if(name MATCHES "_long$")
            set_tests_properties(${name} PROPERTIES LABELS long)
        endif()
    endfunction()
    list(TRANSFORM ptx_quick REPLACE ".+" "${ptx_reports}/\\0.report" OUTPUT_VARIABLE reports)
    ptx_script(ptx_coverage ptx/test_ptx_coverage.py $<TARGET_FILE:flexlab_ptx> ${reports})
    set_tests_properties(ptx_coverage PROPERTIES DEPENDS "${ptx_quick}")
    ptx_script(ptx_mutants ptx/test_ptx_mutants.py ${CMAKE_CURRENT_BINARY_DIR} $<TARGET_FILE:flexlab_ptx>)
    ptx_script(ptx_products ptx/test_ptx_products.py ${CMAKE_CURRENT_BINARY_DIR} $<TARGET_FILE:flexlab_ptx>)
    ptx_script(gpu_static test_gpu_static.py ${PROJECT_BINARY_DIR}/cuda ${FLEXLAB_NVCC})
    if(FLEXLAB_BENCH)
        set(counts ptx/test_ptx_counts.py ${PROJECT_BINARY_DIR}/bench/device_steps $<TARGET_FILE:flexlab_ptx>)
        ptx_script(ptx_counts ${counts} flex16+5:2 fp16,fast:2)
        ptx_script(ptx_counts_long ${counts} flex16+5:8 dfp16:8 fp32:2 bf16:2 fp16:2 bf16,fast:2 flex16+5:128 fp16,fast:128)
    endif()
    if(TARGET flexlab)
        if(gpu_ranks)
            if(TARGET flexlab_nccl_standin)
                list(APPEND gpu_ranks_engines NCCL=$<TARGET_FILE:flexlab_nccl_standin>)
            endif()
            add_test(NAME gpu_ranks_ptx COMMAND ${gpu_ranks} $<TARGET_FILE:flexlab_ptx> ${gpu_ranks_engines})
            add_test(NAME gpu_ranks_ptx_long COMMAND ${gpu_ranks} $<TARGET_FILE:flexlab_ptx> long ${gpu_ranks_engines})
            set_tests_properties(gpu_ranks_ptx gpu_ranks_ptx_long PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3600)
            set_tests_properties(gpu_ranks_ptx PROPERTIES ${rank_test})
            set_tests_properties(gpu_ranks_ptx_long PROPERTIES LABELS long ${rank_test_long})
        endif()
        if(FLEXLAB_BENCH)
            add_test(NAME gpu_check_long COMMAND ${PROJECT_SOURCE_DIR}/tools/gpu-check.sh --rehearse ${PROJECT_BINARY_DIR}
                                                 ${CMAKE_CURRENT_BINARY_DIR}/gpu_check)
            set_tests_properties(gpu_check_long PROPERTIES LABELS long TIMEOUT 7200)
        endif()
        foreach(name failures trainings)
            set(script ptx/test_ptx_${name}.py $<TARGET_FILE:flexlab> $<TARGET_FILE:flexlab_ptx>)
            ptx_script(ptx_${name} ${script})
            ptx_script(ptx_${name}_long ${script} long)
        endforeach()
    endif()
endif()
