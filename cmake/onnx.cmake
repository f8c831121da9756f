# protobuf-c, for networks in ONNX files (src/program/onnx). The library does without: reading one is then an error that
# names the packages. The C text of the messages is generated from onnx.proto when the library is built.
set(default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF) # a part of another project: no more than it asked for
endif()
set(FLEXLAB_ONNX ${default} CACHE STRING "Read ONNX files by protobuf-c: AUTO (where it is found), ON, OFF")
set_property(CACHE FLEXLAB_ONNX PROPERTY STRINGS AUTO ON OFF)
if(NOT FLEXLAB_ONNX MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FLEXLAB_ONNX is '${FLEXLAB_ONNX}', expected AUTO, ON or OFF")
endif()
set(FLEXLAB_ONNX_SOURCES "")
set(FLEXLAB_ONNX_LIBRARY "")
if(NOT FLEXLAB_ONNX STREQUAL OFF)
    find_program(FLEXLAB_PROTOC_C protoc-c)
    find_path(FLEXLAB_PROTOBUF_C_INCLUDE protobuf-c/protobuf-c.h)
    find_library(FLEXLAB_PROTOBUF_C_LIBRARY protobuf-c)
    mark_as_advanced(FLEXLAB_PROTOC_C FLEXLAB_PROTOBUF_C_INCLUDE FLEXLAB_PROTOBUF_C_LIBRARY)
endif()
if(FLEXLAB_ONNX STREQUAL OFF OR NOT FLEXLAB_PROTOC_C OR NOT FLEXLAB_PROTOBUF_C_INCLUDE OR NOT FLEXLAB_PROTOBUF_C_LIBRARY)
    if(FLEXLAB_ONNX STREQUAL ON)
        message(FATAL_ERROR "FLEXLAB_ONNX is ON and protobuf-c is not found. apt-get install libprotobuf-c-dev "
                            "protobuf-c-compiler, or configure with -DFLEXLAB_ONNX=OFF.")
    endif()
    message(STATUS "flexlab: no ONNX files: protobuf-c is not found or FLEXLAB_ONNX is OFF")
    return()
endif()

set(folder ${PROJECT_SOURCE_DIR}/src/program/onnx)
set(generated ${PROJECT_BINARY_DIR}/onnx)
file(MAKE_DIRECTORY ${generated})
add_custom_command(OUTPUT ${generated}/onnx.pb-c.c ${generated}/onnx.pb-c.h VERBATIM DEPENDS ${folder}/onnx.proto
                   COMMAND ${FLEXLAB_PROTOC_C} --c_out=${generated} --proto_path=${folder} ${folder}/onnx.proto
                   COMMENT "Generating the messages of ONNX")
set(FLEXLAB_ONNX_SOURCES ${generated}/onnx.pb-c.c ${generated}/onnx.pb-c.h)
# By its name where the linker looks for it by itself, so that what is installed names no folder of this machine.
get_filename_component(place ${FLEXLAB_PROTOBUF_C_LIBRARY} DIRECTORY)
set(FLEXLAB_ONNX_LIBRARY ${FLEXLAB_PROTOBUF_C_LIBRARY})
if(place IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    set(FLEXLAB_ONNX_LIBRARY protobuf-c)
endif()
# The files that use it: who installs it later compiles no more than those again.
foreach(file read tensor translate wire)
    set_source_files_properties(${folder}/onnx_${file}.c PROPERTIES COMPILE_DEFINITIONS FL_HAVE_ONNX
        INCLUDE_DIRECTORIES "${generated};${FLEXLAB_PROTOBUF_C_INCLUDE}" OBJECT_DEPENDS ${generated}/onnx.pb-c.h)
endforeach()
set_source_files_properties(${generated}/onnx.pb-c.c PROPERTIES INCLUDE_DIRECTORIES
                            "${generated};${FLEXLAB_PROTOBUF_C_INCLUDE}")
