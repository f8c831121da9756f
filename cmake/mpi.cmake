# libflexlab_mpi.so, the engine of groups for MPI (src/group/group_mpi.c): a shared object of its own, which libflexlab
# opens when a group of that engine is asked for. The library needs no MPI. It is compiled by the wrapper mpicc, because
# each implementation has an ABI of its own: who changes the implementation builds this file again.
set(default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF)
endif()
set(FLEXLAB_MPI ${default} CACHE STRING "Build the engine for MPI: AUTO (where mpicc is found), ON, OFF")
set_property(CACHE FLEXLAB_MPI PROPERTY STRINGS AUTO ON OFF)

# Adds libNAME.so, compiled by that wrapper, as the target NAME.
function(add_mpi_engine name mpicc)
    set(source ${PROJECT_SOURCE_DIR}/src/group/group_mpi.c)
    set(file ${PROJECT_BINARY_DIR}/lib${name}.so)
    add_custom_command(OUTPUT ${file} DEPENDS ${source} ${PROJECT_SOURCE_DIR}/src/group/group_engine.h
                             ${PROJECT_SOURCE_DIR}/include/flexlab/nn_group_mpi.h
                       COMMAND ${mpicc} -std=gnu17 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -shared
                               -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
                               -I${FLEXLAB_GENERATED}/include ${source} -o ${file}
                       COMMENT "Compiling the engine for MPI by ${mpicc}" VERBATIM)
    add_custom_target(${name} ALL DEPENDS ${file})
endfunction()

if(NOT FLEXLAB_MPI STREQUAL OFF)
    find_program(FLEXLAB_MPICC mpicc DOC "The compiler wrapper of MPI")
    mark_as_advanced(FLEXLAB_MPICC)
    if(FLEXLAB_MPICC)
        add_mpi_engine(flexlab_mpi ${FLEXLAB_MPICC})
        if(FLEXLAB_INSTALL)
            include(GNUInstallDirs)
            install(FILES ${PROJECT_BINARY_DIR}/libflexlab_mpi.so DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
        endif()
        message(STATUS "flexlab: groups of ranks by MPI, compiled by ${FLEXLAB_MPICC}")
    elseif(FLEXLAB_MPI STREQUAL ON)
        message(FATAL_ERROR "flexlab: FLEXLAB_MPI is ON, but mpicc was not found. apt-get install libopenmpi-dev openmpi-bin")
    else()
        message(STATUS "flexlab: no groups of ranks, because mpicc was not found (apt-get install libopenmpi-dev openmpi-bin)")
    endif()
endif()
