# Flags that hold for every file. Results must not depend on the compiler's taste: no contraction of a*b+c, no fast math.
# -fno-math-errno and -fno-trapping-math change no value; they let square roots and selects be vectorised.
add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
                    -Wvla -Wno-missing-field-initializers
                    -ffp-contract=off -fno-math-errno -fno-trapping-math)
# GCC 12 (12.2 at least) leaves out the rounding of n[0] = (float)a; n[1] = (float)b; for doubles a, b and n where it vectorises the two
# stores together (tests/core/arithmetic/test_compiler.c). Kernels of an instruction set keep that pass: it gains them up to 4 % of a training step, and each
# is compared with the reference, which does without.
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    add_compile_options(-fno-tree-slp-vectorize)
    set(FLEXLAB_FLAGS_KERNEL -ftree-slp-vectorize)
endif()
if(FLEXLAB_WERROR)
    add_compile_options(-Werror)
endif()
if(FLEXLAB_SANITIZE)
    if(CMAKE_C_COMPILER_ID MATCHES Clang)
        add_compile_options(-Wno-pass-failed) # checks in a loop keep it from being vectorised, which is no matter here
    endif()
    add_compile_options(-fsanitize=${FLEXLAB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
    add_link_options(-fsanitize=${FLEXLAB_SANITIZE})
endif()

# Hardening, which tests/tree/test_hardening.py looks for in the built files. The compiler's sanitizers bring their own checks.
option(FLEXLAB_HARDENING "Stack protector, fortified library calls, relocations read-only before main" ON)
if(FLEXLAB_HARDENING AND NOT FLEXLAB_SANITIZE)
    add_compile_options(-fstack-protector-strong)
    add_link_options(-Wl,-z,relro,-z,now)
    if(NOT CMAKE_BUILD_TYPE STREQUAL Debug) # it needs an optimiser
        add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
    endif()
endif()

# Instruction sets belong to kernel files alone, by the end of their name.
include(CheckCCompilerFlag)
set(FLEXLAB_FLAGS_AVX2 ${FLEXLAB_FLAGS_KERNEL} -mavx2 -mfma -mf16c)
set(FLEXLAB_FLAGS_AVX2_VNNI ${FLEXLAB_FLAGS_AVX2} -mavxvnni)
set(FLEXLAB_FLAGS_AVX512BW ${FLEXLAB_FLAGS_KERNEL} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
set(FLEXLAB_FLAGS_AVX512 ${FLEXLAB_FLAGS_AVX512BW} -mavx512vnni)
set(FLEXLAB_FLAGS_AVX512_FAST ${FLEXLAB_FLAGS_AVX512} -mavx512bf16) # class fast
set(FLEXLAB_FLAGS_AVX512_AMX ${FLEXLAB_FLAGS_AVX512} -mavx512vbmi) # tiles themselves are assembly
string(REPLACE ";" " " flags2 "${FLEXLAB_FLAGS_AVX2}")
string(REPLACE ";" " " flags2_vnni "${FLEXLAB_FLAGS_AVX2_VNNI}")
string(REPLACE ";" " " flags512 "${FLEXLAB_FLAGS_AVX512}")
string(REPLACE ";" " " flags512_fast "${FLEXLAB_FLAGS_AVX512_FAST}")
string(REPLACE ";" " " flags512_amx "${FLEXLAB_FLAGS_AVX512_AMX}")
check_c_compiler_flag("${flags2}" FLEXLAB_HAVE_AVX2)
if(FLEXLAB_HAVE_AVX2) # whose kernels it has beside its own
    check_c_compiler_flag("${flags2_vnni}" FLEXLAB_HAVE_AVX2_VNNI)
else()
    set(FLEXLAB_HAVE_AVX2_VNNI OFF)
endif()
check_c_compiler_flag("${flags512}" FLEXLAB_HAVE_AVX512)
check_c_compiler_flag("${flags512_fast}" FLEXLAB_HAVE_AVX512_FAST)
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_FLAGS ${flags512_amx})
check_c_source_compiles("int main(void) { __asm__ volatile(\"tdpbssd %%tmm2, %%tmm1, %%tmm0\" ::); return 0; }"
                        FLEXLAB_HAVE_AVX512_AMX)
set(FLEXLAB_HAVE_AVX512_AMX_FAST ${FLEXLAB_HAVE_AVX512_AMX}) # an assembler has both or none
unset(CMAKE_REQUIRED_FLAGS)

if(FLEXLAB_LIBFUZZER)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "FLEXLAB_LIBFUZZER needs clang, found ${CMAKE_C_COMPILER_ID}: cmake --preset fuzz")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link) # counts edges; the targets alone link the fuzzer
    # clang takes minutes for a kernel file under UBSan; ./dev sanitize runs the same targets on kernels that have it.
    foreach(row AVX2 AVX2_VNNI AVX512BW AVX512 AVX512_FAST)
        list(APPEND FLEXLAB_FLAGS_${row} -fno-sanitize=undefined)
    endforeach()
elseif(FLEXLAB_SANITIZE)
    # Checks make the kernels' unrolled loops large, and gcc takes minutes a file to optimise them, which gains nothing here:
    # with every check, but at -O1, it takes about one.
    foreach(row AVX2 AVX2_VNNI AVX512BW AVX512 AVX512_FAST)
        list(APPEND FLEXLAB_FLAGS_${row} -O1)
    endforeach()
endif()
