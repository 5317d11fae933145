# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# libtidemark_torch.so: the functions for PyTorch's pluggable interface, the fallback of the Python package if it cannot
# compile its shim. The only C++ part that is built here; it needs nothing of PyTorch.

check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(STATUS "C++ compiler not found: libtidemark_torch.so, the fallback for PyTorch, is off")
  return()
endif()
enable_language(CXX)

add_library(tidemark_torch SHARED "${PROJECT_SOURCE_DIR}/pytorch/hooks.cpp")
target_compile_features(tidemark_torch PRIVATE cxx_std_17)
target_compile_options(tidemark_torch PRIVATE -Wall -Wextra -Wpedantic -Wshadow
                       $<$<BOOL:${TIDEMARK_WERROR}>:-Werror>)
target_link_libraries(tidemark_torch PRIVATE tidemark)
set_target_properties(tidemark_torch PROPERTIES CXX_VISIBILITY_PRESET hidden BUILD_WITH_INSTALL_RPATH ON
                      INSTALL_RPATH "$ORIGIN")

# Tests the parts of the shim that do not need PyTorch either.
function(tidemark_shim_test name)
  add_executable(${name}_cpp "${PROJECT_SOURCE_DIR}/pytorch/tests/${name}.cpp" ${ARGN})
  target_compile_features(${name}_cpp PRIVATE cxx_std_17)
  target_compile_options(${name}_cpp PRIVATE -Wall -Wextra -Wpedantic -Wshadow
                         $<$<BOOL:${TIDEMARK_WERROR}>:-Werror>)
  target_link_libraries(${name}_cpp PRIVATE tidemark)
  set_target_properties(${name}_cpp PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

if(TIDEMARK_TESTS)
  tidemark_shim_test(test_stacks)
  tidemark_shim_test(test_share "${PROJECT_SOURCE_DIR}/pytorch/shim_share.cpp")
endif()
