# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# tidemark-mpi: the verb survey with many processes. Only this program links MPI. A sanitizer would report what MPI
# itself leaks.

option(TIDEMARK_MPI "build tidemark-mpi, if MPI is there" ON)
if(NOT TIDEMARK_MPI OR TIDEMARK_SANITIZE OR TIDEMARK_FUZZ)
  return()
endif()

find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(STATUS "MPI not found: tidemark-mpi is not built; ./dev setup mpi installs Open MPI")
  return()
endif()

tidemark_program(tidemark_mpi "${TIDEMARK_MPI_MAIN}")
target_link_libraries(tidemark_mpi PRIVATE tidemark_verbs MPI::MPI_C)
target_compile_options(tidemark_mpi PRIVATE -fstack-protector-strong)
target_link_options(tidemark_mpi PRIVATE LINKER:-z,relro LINKER:-z,now)
set_target_properties(tidemark_mpi PROPERTIES OUTPUT_NAME tidemark-mpi
                      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
