# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# libtidemark_preload.so, for LD_PRELOAD. It contains the CPU cache with hidden symbols, compiled separately with the
# initial-exec TLS model: other models may call a function that allocates.

tidemark_sources(TIDEMARK_PRELOAD_SOURCES "${PROJECT_SOURCE_DIR}/preload/*.c"
                 "${PROJECT_SOURCE_DIR}/src/base/*.c" "${PROJECT_SOURCE_DIR}/src/memory/*.c"
                 "${PROJECT_SOURCE_DIR}/src/core/*.c" "${PROJECT_SOURCE_DIR}/src/cpu/*.c"
                 "${PROJECT_SOURCE_DIR}/src/monitor/*.c")
file(GLOB TIDEMARK_PRELOAD_OWN_SOURCES "${PROJECT_SOURCE_DIR}/preload/*.c")
set(TIDEMARK_PRELOAD_MAP "${PROJECT_SOURCE_DIR}/cmake/tidemark_preload.map")

add_library(tidemark_preload SHARED ${TIDEMARK_PRELOAD_SOURCES})
tidemark_flags(tidemark_preload)
set_source_files_properties(${TIDEMARK_PRELOAD_OWN_SOURCES} PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
set_target_properties(tidemark_preload PROPERTIES C_VISIBILITY_PRESET hidden LINK_DEPENDS "${TIDEMARK_PRELOAD_MAP}")
target_include_directories(tidemark_preload PRIVATE include src)
target_link_libraries(tidemark_preload PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
# -fno-builtin-malloc: the compiler must not replace the body of calloc() by a call of calloc().
target_compile_options(tidemark_preload PRIVATE -ftls-model=initial-exec -ffunction-sections -fdata-sections
                       -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free)
target_link_options(tidemark_preload PRIVATE "LINKER:--version-script=${TIDEMARK_PRELOAD_MAP}" LINKER:--gc-sections
                    LINKER:-z,defs LINKER:-z,nodelete LINKER:-z,relro LINKER:-z,now)
