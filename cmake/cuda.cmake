# libflexlab_cuda.so, the CUDA backend, from src/gpu/*.cu and the generated gpu_<folder>.cu. A shared object of its own,
# which libflexlab opens when a device "cuda" is asked for (src/gpu/gpu_load.c): the library needs no CUDA. nvcc is called
# by cuda_compile.cmake and not by CMake's language CUDA, whose tests of the compiler take longer than the rest of a
# configuration and which demands a C++ compiler first.
set(default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF) # a part of another project: no more than it requested
endif()
set(FLEXLAB_CUDA ${default} CACHE STRING "Build the CUDA backend: AUTO (where nvcc is found), ON, OFF")
set_property(CACHE FLEXLAB_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FLEXLAB_CUDA_SPILLS 0 CACHE STRING "Bytes that a thread of a kernel may spill, stored or loaded; more fail the build")
if(NOT FLEXLAB_CUDA_SPILLS MATCHES "^[0-9]+$")
    message(FATAL_ERROR "FLEXLAB_CUDA_SPILLS is '${FLEXLAB_CUDA_SPILLS}', expected a number of bytes")
endif()
set(FLEXLAB_CUDA_ARCHITECTURES 80 90 CACHE STRING
    "Compute capabilities for which the CUDA backend has machine code, such as 80;90;100;120, or none; others compile its PTX at first use")
set(FLEXLAB_CUDA_OLDEST 12.0) # knows sm_90

file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/*.cu)
list(APPEND FLEXLAB_GPU_SOURCES ${gpu_sources})

# The reason why there will be no backend, in `why`; empty if FLEXLAB_NVCC and FLEXLAB_CUDART exist and work.
function(find_cuda why)
    find_program(FLEXLAB_NVCC nvcc HINTS ENV CUDACXX PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin
                 DOC "nvcc, for the CUDA backend")
    if(NOT FLEXLAB_NVCC AND EXISTS "$ENV{CUDACXX}")
        set_property(CACHE FLEXLAB_NVCC PROPERTY VALUE $ENV{CUDACXX})
    endif()
    if(NOT FLEXLAB_NVCC)
        set(${why} "nvcc is neither in PATH nor where CUDACXX or CUDA_HOME say nor in /usr/local/cuda/bin" PARENT_SCOPE)
        return()
    endif()
    # Once for each nvcc: version, and whether it compiles (it refuses host compilers that it does not know).
    if(NOT "${FLEXLAB_NVCC_TRIED}" STREQUAL "${FLEXLAB_NVCC} $ENV{CUDAHOSTCXX}")
        set(trial ${PROJECT_BINARY_DIR}/CMakeFiles/flexlab_cuda_trial)
        file(WRITE ${trial}.cu "__global__ void kernel() {}\n")
        set(host "")
        if(DEFINED ENV{CUDAHOSTCXX})
            set(host -ccbin $ENV{CUDAHOSTCXX})
        endif()
        execute_process(COMMAND ${FLEXLAB_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
        execute_process(COMMAND ${FLEXLAB_NVCC} ${host} -arch=sm_80 -c ${trial}.cu -o ${trial}.o RESULT_VARIABLE failed
                        OUTPUT_VARIABLE said ERROR_VARIABLE said)
        if(version MATCHES "release ([0-9.]+)")
            set(FLEXLAB_NVCC_VERSION ${CMAKE_MATCH_1} CACHE INTERNAL "")
        endif()
        set(result "")
        if(failed)
            string(REGEX REPLACE "[\r\n].*" "" result "${FLEXLAB_NVCC} does not compile: ${said}")
        elseif(FLEXLAB_NVCC_VERSION VERSION_LESS FLEXLAB_CUDA_OLDEST)
            set(result "${FLEXLAB_NVCC} is of CUDA ${FLEXLAB_NVCC_VERSION}, expected ${FLEXLAB_CUDA_OLDEST} or later")
        endif()
        set(FLEXLAB_NVCC_RESULT "${result}" CACHE INTERNAL "")
        set(FLEXLAB_NVCC_TRIED "${FLEXLAB_NVCC} $ENV{CUDAHOSTCXX}" CACHE INTERNAL "")
        set(FLEXLAB_NVCC_HOST "${host}" CACHE INTERNAL "")
    endif()
    file(REAL_PATH ${FLEXLAB_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH root)
    find_library(FLEXLAB_CUDART cudart_static HINTS ${root}/.. ENV CUDA_HOME PATHS /usr/local/cuda
                 PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib DOC "CUDA's runtime, static")
    mark_as_advanced(FLEXLAB_NVCC FLEXLAB_CUDART)
    if(FLEXLAB_NVCC_RESULT)
        set(${why} "${FLEXLAB_NVCC_RESULT}" PARENT_SCOPE)
    elseif(NOT FLEXLAB_CUDART)
        set(${why} "libcudart_static.a is not beside ${FLEXLAB_NVCC}" PARENT_SCOPE)
    else()
        set(${why} "" PARENT_SCOPE)
    endif()
endfunction()

set(why "FLEXLAB_CUDA is OFF")
if(NOT FLEXLAB_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FLEXLAB_CUDA is '${FLEXLAB_CUDA}', expected AUTO, ON or OFF")
elseif(NOT FLEXLAB_CUDA STREQUAL OFF)
    find_cuda(why)
    if(why AND FLEXLAB_CUDA STREQUAL ON)
        message(FATAL_ERROR "FLEXLAB_CUDA is ON: ${why}. Put nvcc in PATH or its folder's parent in CUDA_HOME, or configure "
                            "with -DFLEXLAB_CUDA=OFF.")
    endif()
endif()
if(why)
    message(STATUS "flexlab: no CUDA backend: ${why}")
    return()
endif()
message(STATUS "flexlab: CUDA backend with ${FLEXLAB_NVCC} (CUDA ${FLEXLAB_NVCC_VERSION})")

# One PTX, which the tests execute, and of which ptxas makes the machine code of each architecture: two front ends of nvcc
# would take a fifth more time. Compute capability 8.0 is the least; what nvcc does not know yet is left to the driver.
set(codes compute_80)
set(architectures ${FLEXLAB_CUDA_ARCHITECTURES})
if(architectures STREQUAL "none")
    set(architectures "")
endif()
execute_process(COMMAND ${FLEXLAB_NVCC} --list-gpu-code OUTPUT_VARIABLE known)
foreach(arch ${architectures})
    if(NOT arch MATCHES "^[0-9]+$" OR arch LESS 80)
        message(FATAL_ERROR "FLEXLAB_CUDA_ARCHITECTURES has '${arch}', expected compute capabilities of 80 or more, such as 80;90;120, or none")
    elseif(known MATCHES "sm_${arch}[^0-9a-z]")
        string(APPEND codes ",sm_${arch}")
    else()
        message(STATUS "flexlab: ${FLEXLAB_NVCC} does not know sm_${arch}: its driver will compile the PTX")
    endif()
endforeach()
# No contraction of a*b+c, as everywhere. What runs on the host are launches, which -O1 compiles in half of the time that
# -O3 takes.
set(flags ${FLEXLAB_NVCC_HOST} -std=c++17 -O3 -fmad=false -gencode arch=compute_80,code=[${codes}]
    -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -I${FLEXLAB_GENERATED}/include -I${FLEXLAB_GENERATED}/gpu
    -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fvisibility=hidden,-fPIC,-ffp-contract=off,-O1)
if(FLEXLAB_WERROR)
    list(APPEND flags -Werror all-warnings)
endif()
set(gpu_objects "")
foreach(source ${FLEXLAB_GPU_SOURCES})
    cmake_path(GET source STEM name)
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} VERBATIM
        DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/cuda_compile.cmake DEPFILE ${object}.d
        COMMAND ${CMAKE_COMMAND} -DSPILLS=${FLEXLAB_CUDA_SPILLS} -P ${PROJECT_SOURCE_DIR}/cmake/cuda_compile.cmake --
                ${CMAKE_CUDA_COMPILER_LAUNCHER}
                ${FLEXLAB_NVCC} ${flags} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
        COMMENT "Building CUDA object cuda/${name}.o")
    list(APPEND gpu_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda)

add_library(flexlab_cuda MODULE ${gpu_objects})
set_source_files_properties(${gpu_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(flexlab_cuda PROPERTIES LINKER_LANGUAGE C PREFIX lib)
# The object contains only the runtime of CUDA, which opens the driver. Nothing of it is visible from outside.
target_link_libraries(flexlab_cuda PRIVATE ${FLEXLAB_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
target_link_options(flexlab_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
if(FLEXLAB_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS flexlab_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
