# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Tests: each tests/*/test_*.c and tests/prop/prop_*.c is one program and one test of the same name; those in
# tests/tool also link the parts of the tool. Then the corpus of each fuzz/fuzz_*.c, a test of the same name;
# the command as a whole, and the checks of the tree and of what is installed. Every test ends with a line
# `N passed, N failed, N skipped`.

# The program under test, where data of tests lies, and what the checks below compile with.
set(TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_SOURCE=${PROJECT_SOURCE_DIR}" "TIDEMARK_SANITIZE=${TIDEMARK_SANITIZE}")
if(TARGET tidemark_tool)
  list(APPEND TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_BIN=$<TARGET_FILE:tidemark_tool>")
endif()

# Those that take long begin first, so that no processor waits for the last of them.
set(TIDEMARK_LONG_TESTS command preload install prop_ledger prop_plan fuzz_cpu test_format test_incremental
    test_replay_verbs)

function(tidemark_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TIDEMARK_TEST_TIMEOUT} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${TIDEMARK_TEST_ENVIRONMENT}")
  if(name IN_LIST TIDEMARK_LONG_TESTS)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

# A program of tests. Its own code is optimised little: most of the time of a build would go into it.
function(tidemark_test_program name)
  tidemark_program(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

tidemark_sources(TIDEMARK_TEST_SOURCES "${PROJECT_SOURCE_DIR}/tests/*/test_*.c"
                 "${PROJECT_SOURCE_DIR}/tests/prop/prop_*.c")
if(NOT TARGET tidemark_tool)
  list(FILTER TIDEMARK_TEST_SOURCES EXCLUDE REGEX "/tests/tool/")
endif()
foreach(source IN LISTS TIDEMARK_TEST_SOURCES)
  cmake_path(GET source STEM name)
  tidemark_test_program(${name} "${source}")
  if(source MATCHES "/tests/tool/")
    target_link_libraries(${name} PRIVATE tidemark_verbs)
  endif()
  tidemark_test(${name} ${name})
endforeach()

# The corpus of each fuzz target, without a fuzzer.
foreach(source IN LISTS TIDEMARK_FUZZ_SOURCES)
  cmake_path(GET source STEM name)
  tidemark_test_program(replay_${name} "${source}" tests/replay_corpus.c)
  target_compile_definitions(replay_${name} PRIVATE "FUZZ_TARGET=\"${name}\"")
  tidemark_test(${name} replay_${name})
endforeach()

# The command as its users meet it.
find_program(TIDEMARK_PYTHON python3)
mark_as_advanced(TIDEMARK_PYTHON)
if(TARGET tidemark_tool AND TIDEMARK_PYTHON)
  tidemark_test(command "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/run")
  tidemark_test(recordings_tide "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-tide")
elseif(TARGET tidemark_tool)
  message(STATUS "python3 not found: the test of the command as a whole is off")
endif()

if(TIDEMARK_EXAMPLES)
  foreach(source IN LISTS TIDEMARK_EXAMPLE_SOURCES)
    cmake_path(GET source STEM name)
    tidemark_test(example_${name} example_${name})
  endforeach()
endif()

# The preload library under programs of its own and of this computer; the script skips itself under a sanitizer.
if(TIDEMARK_SANITIZE)
  tidemark_test(preload "${PROJECT_SOURCE_DIR}/tests/preload/run" "${PROJECT_BINARY_DIR}")
endif()

# Everything below looks at the sources or at a library without a sanitizer: once is enough.
if(TIDEMARK_SANITIZE OR TIDEMARK_FUZZ)
  return()
endif()

# A compiler that was missing last time is looked for again.
if(NOT CMAKE_CXX_COMPILER)
  unset(CMAKE_CXX_COMPILER CACHE)
endif()
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(STATUS "C++ compiler not found: the tests of headers and installation in C++ are off")
  set(CMAKE_CXX_COMPILER "")
endif()
list(APPEND TIDEMARK_TEST_ENVIRONMENT "CC=${CMAKE_C_COMPILER}" "CXX=${CMAKE_CXX_COMPILER}" "CMAKE=${CMAKE_COMMAND}")

if(TARGET tidemark_preload)
  foreach(name chain children hammer locked matrix moments rules)
    add_executable(preload_${name} tests/preload/${name}.c)
  endforeach()
  foreach(name greedy_lookup visitor)
    add_library(preload_${name} MODULE tests/preload/${name}.c)
  endforeach()
  foreach(name chain children hammer locked matrix moments rules greedy_lookup visitor)
    tidemark_flags(preload_${name})
    target_compile_definitions(preload_${name} PRIVATE _GNU_SOURCE)
    target_compile_options(preload_${name} PRIVATE -fno-builtin)  # every call is made
    target_link_libraries(preload_${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    set_target_properties(preload_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
                          RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/preload"
                          LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/preload")
  endforeach()
  tidemark_test(preload "${PROJECT_SOURCE_DIR}/tests/preload/run" "${PROJECT_BINARY_DIR}")
endif()
if(TARGET test_stacks_cpp)
  tidemark_test(pytorch_stacks "${PROJECT_BINARY_DIR}/tests/test_stacks_cpp")
endif()
if(TIDEMARK_PYTHON AND TARGET tidemark_torch)
  tidemark_test(pytorch "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/pytorch/tests/run" "${PROJECT_BINARY_DIR}")
endif()
tidemark_test(layers "${PROJECT_SOURCE_DIR}/scripts/check-layers")
tidemark_test(layers_self_test "${PROJECT_SOURCE_DIR}/scripts/check-layers" --self-test)
tidemark_test(headers "${PROJECT_SOURCE_DIR}/scripts/check-headers")
tidemark_test(symbols "${PROJECT_SOURCE_DIR}/scripts/check-symbols" "${PROJECT_BINARY_DIR}")
tidemark_test(readme "${PROJECT_SOURCE_DIR}/scripts/check-readme" "${PROJECT_BINARY_DIR}")
if(TIDEMARK_INSTALL)
  tidemark_test(install "${PROJECT_SOURCE_DIR}/tests/install/run" "${PROJECT_BINARY_DIR}")
endif()
