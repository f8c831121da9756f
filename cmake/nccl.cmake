# libflexlab_nccl.so, the engine of groups for NCCL (src/group/group_nccl.c): a shared object of its own, which libflexlab
# opens when a group of that engine is asked for. The library needs neither NCCL nor CUDA.
set(default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF)
endif()
set(FLEXLAB_NCCL ${default} CACHE STRING "Build the engine for NCCL: AUTO (where NCCL and CUDA's runtime are found), ON, OFF")
set_property(CACHE FLEXLAB_NCCL PROPERTY STRINGS AUTO ON OFF)
if(NOT FLEXLAB_NCCL MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FLEXLAB_NCCL is '${FLEXLAB_NCCL}', expected AUTO, ON or OFF")
elseif(FLEXLAB_NCCL STREQUAL OFF)
    return()
endif()

# NCCL_HOME: a folder with include/nccl.h and lib/libnccl.so.2, as in PyPI's nvidia-nccl-cu13: site-packages/nvidia/nccl.
set(cuda ENV CUDA_HOME ENV CUDA_PATH)
set(targets targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
find_path(FLEXLAB_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ${cuda} PATHS /usr/local/cuda PATH_SUFFIXES include DOC "NCCL's header")
find_library(FLEXLAB_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ENV NCCL_HOME ${cuda} PATHS /usr/local/cuda
             PATH_SUFFIXES lib lib64 DOC "NCCL")
find_path(FLEXLAB_CUDA_INCLUDE cuda_runtime.h HINTS ${cuda} PATHS /usr/local/cuda PATH_SUFFIXES include ${targets}/include
          DOC "CUDA's header")
find_library(FLEXLAB_CUDART cudart_static HINTS ${cuda} PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib ${targets}/lib
             DOC "CUDA's runtime, static")
mark_as_advanced(FLEXLAB_NCCL_INCLUDE FLEXLAB_NCCL_LIBRARY FLEXLAB_CUDA_INCLUDE FLEXLAB_CUDART)
set(missing "")
foreach(file "NCCL_INCLUDE nccl.h" "NCCL_LIBRARY libnccl.so" "CUDA_INCLUDE cuda_runtime.h" "CUDART libcudart_static.a")
    separate_arguments(file)
    list(GET file 0 variable)
    list(GET file 1 name)
    if(NOT FLEXLAB_${variable})
        list(APPEND missing ${name})
    endif()
endforeach()
if(missing)
    list(JOIN missing ", " missing)
    set(missing "${missing} not found (the CUDA toolkit in CUDA_HOME; apt-get install libnccl-dev, or pip install "
                "nvidia-nccl-cu13 and its folder nvidia/nccl in NCCL_HOME)")
    list(JOIN missing "" missing)
    if(FLEXLAB_NCCL STREQUAL ON)
        message(FATAL_ERROR "flexlab: FLEXLAB_NCCL is ON, but ${missing}")
    endif()
    message(STATUS "flexlab: no groups of ranks by NCCL: ${missing}")
    return()
endif()

# The object once more in the tests, linked with a stand-in for NCCL and CUDA.
add_library(flexlab_nccl_object OBJECT ${PROJECT_SOURCE_DIR}/src/group/group_nccl.c)
target_include_directories(flexlab_nccl_object PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                           ${FLEXLAB_GENERATED}/include)
target_include_directories(flexlab_nccl_object SYSTEM PUBLIC ${FLEXLAB_NCCL_INCLUDE} ${FLEXLAB_CUDA_INCLUDE})
add_library(flexlab_nccl MODULE $<TARGET_OBJECTS:flexlab_nccl_object>)
set_target_properties(flexlab_nccl PROPERTIES LINKER_LANGUAGE C PREFIX lib)
cmake_path(GET FLEXLAB_NCCL_LIBRARY PARENT_PATH folder)
if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES) # the loader finds NCCL where the linker did, installed as well
    set_target_properties(flexlab_nccl PROPERTIES INSTALL_RPATH ${folder} BUILD_WITH_INSTALL_RPATH ON)
endif()
target_link_libraries(flexlab_nccl PRIVATE ${FLEXLAB_NCCL_LIBRARY} ${FLEXLAB_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
target_link_options(flexlab_nccl PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
if(FLEXLAB_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS flexlab_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
message(STATUS "flexlab: groups of ranks by NCCL, ${FLEXLAB_NCCL_LIBRARY}")
