# Writes the public header flexlab/symbols.h from the declarations in include/flexlab: one pragma for each exported
# function, which gives it the linker's name flexlab_<name> (docs/decisions/0013-symbols.md). A header's functions have
# a section that takes effect where the header itself is included: a program may define a data_open of its own as long
# as it does not include data.h.
set(SYMBOL_SECTIONS "")
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/flexlab/*.h)
file(GLOB operations CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/flexlab/*.def)
foreach(header ${public_headers} ${operations})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()
set(comment "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/")

# The names that `pattern` ends with in the file, each as a line of pragma after `prefix`.
function(pragmas_of file pattern prefix result)
    file(READ ${file} text)
    string(REGEX REPLACE "${comment}" "" text "${text}")
    string(REGEX MATCHALL "${pattern}" declarations "${text}")
    set(lines "")
    foreach(declaration IN LISTS declarations)
        string(REGEX REPLACE "${pattern}" "\\1" name "${declaration}")
        if(NOT name MATCHES "^flexlab_")
            string(APPEND lines "#pragma redefine_extname ${prefix}${name} flexlab_${prefix}${name}\n")
        endif()
    endforeach()
    set(${result} "${lines}" PARENT_SCOPE)
endfunction()

# The entries of ops.def that these two headers declare.
set(entries_of_tensor_elementwise "MAP[123]" "MAP[123]_SCALARS?" "REAL1[A-Z_]*")
set(entries_of_blocks_elementwise "MAP[123]_BLOCK" "REAL2[A-Z_]*")
foreach(header ${public_headers})
    cmake_path(GET header STEM LAST_ONLY stem)
    pragmas_of(${header} "\nFLEXLAB_API[^;(#]*[ *]([a-z][a-z0-9_]*)\\(" "" lines)
    foreach(entry IN LISTS entries_of_${stem})
        pragmas_of(${PROJECT_SOURCE_DIR}/include/flexlab/ops.def
                   "\nFL_${entry}\\([0-9]+, [A-Z0-9_]+, ([a-z0-9_]+)," "tensor_" operations)
        string(APPEND lines "${operations}")
    endforeach()
    if(lines)
        string(TOUPPER ${stem} guard)
        string(APPEND SYMBOL_SECTIONS "\n#if defined(FLEXLAB_${guard}_H) && !defined(FLEXLAB_SYMBOLS_OF_${guard})\n"
               "#define FLEXLAB_SYMBOLS_OF_${guard}\n${lines}#endif\n")
    endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/symbols.h.in ${FLEXLAB_GENERATED}/include/flexlab/symbols.h @ONLY)
