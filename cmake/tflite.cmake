# FlatBuffers, for .tflite files (src/program/tflite): headers of C++ alone, and flatc, which makes one more of tflite.fbs.
# The library needs neither once it is built, nor a library of C++. Without them, reading such a file is an error that
# names the packages. flexlab_tflite_tables is the one object in C++; FLEXLAB_TFLITE_OBJECTS, for who joins the objects.
set(default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF) # a part of another project: no more than it asked for
endif()
set(FLEXLAB_TFLITE ${default} CACHE STRING "Read .tflite files by FlatBuffers: AUTO (where it is found), ON, OFF")
set_property(CACHE FLEXLAB_TFLITE PROPERTY STRINGS AUTO ON OFF)
set(FLEXLAB_TFLITE_OBJECTS "")
set(why "FLEXLAB_TFLITE is OFF")
if(NOT FLEXLAB_TFLITE MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FLEXLAB_TFLITE is '${FLEXLAB_TFLITE}', expected AUTO, ON or OFF")
elseif(NOT FLEXLAB_TFLITE STREQUAL OFF)
    find_program(FLEXLAB_FLATC flatc DOC "flatc, the compiler of FlatBuffers")
    find_path(FLEXLAB_FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h DOC "The headers of FlatBuffers")
    mark_as_advanced(FLEXLAB_FLATC FLEXLAB_FLATBUFFERS_INCLUDE)
    include(CheckLanguage)
    check_language(CXX)
    set(why "")
    if(NOT FLEXLAB_FLATC)
        set(why "flatc is not found (apt-get install flatbuffers-compiler)")
    elseif(NOT FLEXLAB_FLATBUFFERS_INCLUDE)
        set(why "flatbuffers/flatbuffers.h is not found (apt-get install libflatbuffers-dev)")
    elseif(NOT CMAKE_CXX_COMPILER)
        set(why "there is no compiler of C++ (apt-get install g++)")
    endif()
    if(why AND FLEXLAB_TFLITE STREQUAL ON)
        message(FATAL_ERROR "FLEXLAB_TFLITE is ON: ${why}. Or configure with -DFLEXLAB_TFLITE=OFF.")
    endif()
endif()
if(why)
    message(STATUS "flexlab: no .tflite files: ${why}")
    return()
endif()

enable_language(CXX)
set(folder ${PROJECT_BINARY_DIR}/tflite)
set(schema ${PROJECT_SOURCE_DIR}/src/program/tflite/tflite.fbs)
add_custom_command(OUTPUT ${folder}/tflite_generated.h VERBATIM DEPENDS ${schema}
                   COMMAND ${FLEXLAB_FLATC} --cpp -o ${folder} ${schema}
                   COMMENT "Generating the accessors of .tflite files")
add_library(flexlab_tflite_tables OBJECT ${PROJECT_SOURCE_DIR}/src/program/tflite/tflite_tables.cpp
                                         ${folder}/tflite_generated.h)
set_target_properties(flexlab_tflite_tables PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
# Unique symbols (arrays in inline functions) would stay global in the static library; that sanitizer of clang needs
# run-time types, which a library of C++ has.
target_compile_options(flexlab_tflite_tables PRIVATE -fno-exceptions -fno-rtti $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>
                       $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
target_include_directories(flexlab_tflite_tables PRIVATE ${PROJECT_SOURCE_DIR}/src ${folder})
target_include_directories(flexlab_tflite_tables SYSTEM PRIVATE ${FLEXLAB_FLATBUFFERS_INCLUDE})
set(FLEXLAB_TFLITE_OBJECTS $<TARGET_OBJECTS:flexlab_tflite_tables>)
foreach(part read nodes batch)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/program/tflite/tflite_${part}.c PROPERTIES COMPILE_DEFINITIONS
                                FL_HAVE_TFLITE)
endforeach()
