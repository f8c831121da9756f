# libflexlab, static and shared, from every .c file under src/: of its folders and their subfolders.
find_package(Threads REQUIRED)
if(FLEXLAB_OPENMP)
    find_package(OpenMP COMPONENTS C)
    if(NOT OpenMP_C_FOUND)
        message(FATAL_ERROR "OpenMP not found for ${CMAKE_C_COMPILER}. gcc has it built in; for clang install libomp-dev "
                            "(apt-get install libomp-dev), or configure with -DFLEXLAB_OPENMP=OFF.")
    endif()
endif()
find_package(ZLIB)
if(NOT ZLIB_FOUND)
    message(FATAL_ERROR "zlib not found (gzipped data files). apt-get install zlib1g-dev")
endif()

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/*.c ${PROJECT_SOURCE_DIR}/src/*/*/*.c
     ${PROJECT_SOURCE_DIR}/src/*/*/*/*.c)
list(FILTER sources EXCLUDE REGEX "/group/group_(mpi|nccl)\\.c$") # by cmake/mpi.cmake and cmake/nccl.cmake
set(all_sources ${sources})
list(FILTER sources EXCLUDE REGEX "_(avx2|avx2_vnni|avx512|avx512bw|avx512_fast|avx512_amx|avx512_amx_fast)\\.c$")
set(definitions "")
# The kernel files of one ending, with that ending's flags, if the compiler has them, which FL_HAVE_... records. They
# are compiled without the stack protector: their functions run once a tile or block, and their arrays depend on no
# length from outside.
function(add_kernels ending flags have)
    if(FLEXLAB_${have})
        set(kernels ${all_sources})
        list(FILTER kernels INCLUDE REGEX "_${ending}\\.c$")
        set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "${flags};-fno-stack-protector")
        set(sources ${sources} ${kernels} PARENT_SCOPE)
        set(definitions ${definitions} FL_${have} PARENT_SCOPE)
    endif()
endfunction()
add_kernels(avx2 "${FLEXLAB_FLAGS_AVX2}" HAVE_AVX2)
add_kernels(avx2_vnni "${FLEXLAB_FLAGS_AVX2_VNNI}" HAVE_AVX2_VNNI)
add_kernels(avx512bw "${FLEXLAB_FLAGS_AVX512BW}" HAVE_AVX512)
add_kernels(avx512 "${FLEXLAB_FLAGS_AVX512}" HAVE_AVX512)
add_kernels(avx512_fast "${FLEXLAB_FLAGS_AVX512_FAST}" HAVE_AVX512_FAST)
add_kernels(avx512_amx "${FLEXLAB_FLAGS_AVX512_AMX}" HAVE_AVX512_AMX)
add_kernels(avx512_amx_fast "${FLEXLAB_FLAGS_AVX512_AMX}" HAVE_AVX512_AMX_FAST)
list(REMOVE_DUPLICATES definitions)

add_library(flexlab_objects OBJECT ${sources} ${FLEXLAB_ONNX_SOURCES})
target_compile_definitions(flexlab_objects PRIVATE ${definitions})
# An installed program finds backends and engines in the folder of libraries by its own place (src/core/base/plugin.c), not by an
# entry in RUNPATH: CMake would fill the build tree's up with empty ones, which stand for the current folder.
include(GNUInstallDirs)
file(RELATIVE_PATH programs ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_BINDIR})
file(RELATIVE_PATH libraries ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/base/plugin.c PROPERTIES COMPILE_DEFINITIONS
                            "FL_PROGRAMS=\"${programs}\";FL_LIBRARIES=\"${libraries}\"")
target_include_directories(flexlab_objects PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${FLEXLAB_GENERATED}/include PRIVATE ${PROJECT_SOURCE_DIR}/src ${FLEXLAB_GENERATED})
# By name and not as a source: whoever links the objects is then linked as a program in C.
target_link_libraries(flexlab_objects PUBLIC ${FLEXLAB_TFLITE_OBJECTS})
target_link_libraries(flexlab_objects PUBLIC Threads::Threads ZLIB::ZLIB ${FLEXLAB_IMAGE_TARGETS} ${FLEXLAB_ONNX_LIBRARY} m
                      ${CMAKE_DL_LIBS})
if(FLEXLAB_OPENMP)
    target_link_libraries(flexlab_objects PUBLIC OpenMP::OpenMP_C)
    target_compile_definitions(flexlab_objects PRIVATE FL_OPENMP)
endif()

# What a program that is linked with the static library needs besides; no flag, no header. OpenMP by name where the linker
# looks for it by itself, so that what is installed names no folder of this machine.
set(FLEXLAB_PRIVATE_LIBRARIES ${FLEXLAB_ONNX_LIBRARY} m ${CMAKE_DL_LIBS})
if(FLEXLAB_OPENMP)
    foreach(name ${OpenMP_C_LIB_NAMES})
        get_filename_component(folder ${OpenMP_${name}_LIBRARY} DIRECTORY)
        if(name STREQUAL pthread)
            # Threads::Threads
        elseif(folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
            list(PREPEND FLEXLAB_PRIVATE_LIBRARIES ${name})
        else()
            list(PREPEND FLEXLAB_PRIVATE_LIBRARIES ${OpenMP_${name}_LIBRARY})
        endif()
    endforeach()
endif()

# The static library is one object file in which the hidden symbols, fl_... and all that is ours alone, are local, so that
# they meet no symbol of the program (docs/decisions/0013-symbols.md). Where that cannot be done they stay global in it.
get_target_property(link_time_optimised flexlab_objects INTERPROCEDURAL_OPTIMIZATION)
string(TOUPPER "CMAKE_C_FLAGS_${CMAKE_BUILD_TYPE}" flags_of_type)
set(FLEXLAB_LOCAL_SYMBOLS OFF)
if(NOT CMAKE_OBJCOPY OR NOT CMAKE_LINKER)
    set(why "there is no objcopy or no linker")
elseif(APPLE OR WIN32)
    set(why "its object files are not ELF")
elseif(link_time_optimised OR "${CMAKE_C_FLAGS} ${${flags_of_type}}" MATCHES "-flto")
    set(why "link-time optimisation leaves no machine code to join")
else()
    set(FLEXLAB_LOCAL_SYMBOLS ON)
endif()
set(static_objects $<TARGET_OBJECTS:flexlab_objects> ${FLEXLAB_TFLITE_OBJECTS})
set(FLEXLAB_NAMED_SYMBOLS OFF)
if(FLEXLAB_LOCAL_SYMBOLS AND CMAKE_NM AND NOT FLEXLAB_SANITIZE)
    set(FLEXLAB_NAMED_SYMBOLS ON) # local functions of kernels; sanitizers have local functions of their own
    set_property(TARGET flexlab_objects PROPERTY C_COMPILER_LAUNCHER sh ${PROJECT_SOURCE_DIR}/cmake/name_symbols.sh
                 ${CMAKE_NM} ${CMAKE_OBJCOPY} ${CMAKE_C_COMPILER_LAUNCHER})
endif()
if(FLEXLAB_LOCAL_SYMBOLS)
    set(joined ${PROJECT_BINARY_DIR}/joined/$<CONFIG>)
    set(static_objects ${joined}/flexlab.o)
    add_custom_command(OUTPUT ${static_objects} VERBATIM COMMAND_EXPAND_LISTS
                       DEPENDS flexlab_objects $<TARGET_OBJECTS:flexlab_objects> ${FLEXLAB_TFLITE_OBJECTS}
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${joined}
                       COMMAND ${CMAKE_LINKER} -r -o ${static_objects} $<TARGET_OBJECTS:flexlab_objects> ${FLEXLAB_TFLITE_OBJECTS}
                       COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${static_objects}
                       COMMENT "Joining the objects of the static library, internal symbols local")
else()
    message(STATUS "flexlab: the static library keeps its internal symbols (fl_...) global: ${why}")
endif()

# A format whose identity the kernels do not support would compute garbage: no library is built with it.
if(NOT CMAKE_CROSSCOMPILING)
    add_executable(flexlab_check_formats EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/check_formats.c
                                                  $<TARGET_OBJECTS:flexlab_objects>)
    target_include_directories(flexlab_check_formats PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(flexlab_check_formats PRIVATE flexlab_objects)
    set(formats_checked ${PROJECT_BINARY_DIR}/formats_checked)
    add_custom_command(OUTPUT ${formats_checked} VERBATIM DEPENDS flexlab_check_formats
                       COMMAND flexlab_check_formats COMMAND ${CMAKE_COMMAND} -E touch ${formats_checked}
                       COMMENT "Checking the formats")
    add_custom_target(flexlab_formats_checked DEPENDS ${formats_checked})
endif()

add_library(flexlab_static STATIC ${static_objects})
add_library(flexlab_shared SHARED $<TARGET_OBJECTS:flexlab_objects>)
add_library(flexlab::static ALIAS flexlab_static)
add_library(flexlab::flexlab ALIAS flexlab_shared)
foreach(target flexlab_static flexlab_shared)
    if(TARGET flexlab_formats_checked)
        add_dependencies(${target} flexlab_formats_checked)
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME flexlab VERSION ${FLEXLAB_VERSION} LINKER_LANGUAGE C
                                               SOVERSION ${FLEXLAB_SOVERSION})
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                               $<BUILD_INTERFACE:${FLEXLAB_GENERATED}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE Threads::Threads ${FLEXLAB_IMAGE_TARGETS} ZLIB::ZLIB
                          ${FLEXLAB_PRIVATE_LIBRARIES})
endforeach()
target_link_libraries(flexlab_shared PRIVATE ${FLEXLAB_TFLITE_OBJECTS})
set_target_properties(flexlab_static PROPERTIES EXPORT_NAME static)
set_target_properties(flexlab_shared PROPERTIES EXPORT_NAME flexlab)
target_link_options(flexlab_shared PRIVATE -Wl,-z,nodelete) # its threads outlive dlclose (src/core/base/parallel.c)
