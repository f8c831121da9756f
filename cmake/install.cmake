# Installs the components library (the shared library), development (static library, headers, CMake package, pkg-config
# file) and program (tools/).
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/flexlab)
install(TARGETS flexlab_shared EXPORT flexlab_shared
        RUNTIME COMPONENT library LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS flexlab_static EXPORT flexlab_static ARCHIVE COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/flexlab ${FLEXLAB_GENERATED}/include/flexlab
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

# Two lists of targets: a user of the shared library needs none of the libraries that the static one requires.
foreach(kind shared static)
    install(EXPORT flexlab_${kind} NAMESPACE flexlab:: FILE flexlab-${kind}.cmake DESTINATION ${package_folder}
            COMPONENT development)
endforeach()
string(REPLACE "::" ";" PACKAGES "${FLEXLAB_IMAGE_TARGETS}")
list(REMOVE_DUPLICATES PACKAGES)
list(APPEND PACKAGES Threads ZLIB)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/flexlabConfig.cmake.in ${FLEXLAB_GENERATED}/flexlabConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${FLEXLAB_GENERATED}/flexlabConfigVersion.cmake COMPATIBILITY ${FLEXLAB_COMPATIBILITY})
install(FILES ${FLEXLAB_GENERATED}/flexlabConfig.cmake ${FLEXLAB_GENERATED}/flexlabConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)

# The pkg-config file finds its prefix from where it lies, so that an installed tree may be moved.
set(pc_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PC_PREFIX ${pc_folder} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
foreach(kind LIB INCLUDE)
    cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${kind}DIR absolute)
    set(PC_${kind}DIR ${CMAKE_INSTALL_${kind}DIR})
    if(NOT absolute)
        string(PREPEND PC_${kind}DIR "\${prefix}/")
    endif()
endforeach()
set(PC_PRIVATE_LIBRARIES "")
foreach(library ${FLEXLAB_IMAGE_LIBRARIES} ${FLEXLAB_PRIVATE_LIBRARIES} ${CMAKE_THREAD_LIBS_INIT})
    if(NOT library MATCHES "^(-|/)")
        string(PREPEND library "-l")
    endif()
    string(APPEND PC_PRIVATE_LIBRARIES " ${library}")
endforeach()
list(JOIN FLEXLAB_IMAGE_MODULES " " PC_MODULES)
string(STRIP "${PC_MODULES} zlib" PC_MODULES)
configure_file(${PROJECT_SOURCE_DIR}/cmake/flexlab.pc.in ${FLEXLAB_GENERATED}/flexlab.pc @ONLY)
install(FILES ${FLEXLAB_GENERATED}/flexlab.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
