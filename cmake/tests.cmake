# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Tests: the files tests/<folder>/test_*.c are the program tests_<folder>, and each file is a test of its name, in its own
# run of the program. The corpus of each fuzz/fuzz_*.c is a test of that name. Then the whole command, and checks of the
# tree and of an installation. Every test ends with a line `N passed, N failed, N skipped`.

# The program under test, the folder of test data, and settings of the checks below.
set(TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_SOURCE=${PROJECT_SOURCE_DIR}" "TIDEMARK_SANITIZE=${TIDEMARK_SANITIZE}")
if(TARGET tidemark_tool)
  list(APPEND TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_BIN=$<TARGET_FILE:tidemark_tool>")
endif()
if(TARGET tidemark_mpi)
  list(APPEND TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_MPI_BIN=$<TARGET_FILE:tidemark_mpi>"
       "TIDEMARK_MPIRUN=${MPIEXEC_EXECUTABLE}")
endif()

# Runs a program and prints the processor time that it and its children took, for ./dev.
add_executable(t_clock tests/clock.c)
tidemark_flags(t_clock)

# tidemark_test(NAME PROGRAM [ARGUMENT ...]): the program is a target or a path.
function(tidemark_test name program)
  if(NOT program MATCHES "/")
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${name} COMMAND t_clock ${program} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TIDEMARK_TEST_TIMEOUT} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${TIDEMARK_TEST_ENVIRONMENT}")
endfunction()

# A program of tests from the sources after its name. Its own code is not optimised, because that would take most of the
# build time.
function(tidemark_test_program name)
  tidemark_program(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

# The same with the harness.
function(tidemark_harness_program name)
  tidemark_test_program(${name} tests/t.c ${ARGN})
  target_link_options(${name} PRIVATE LINKER:--wrap=pthread_create)
endfunction()

# Removes from a list the sources whose tests start no thread: the thread sanitizer can find nothing in them.
function(tidemark_keep_threads variable)
  set(kept)
  foreach(source IN LISTS ${variable})
    file(STRINGS "${source}" lines REGEX "^#define T_THREADS$")
    if(lines)
      list(APPEND kept "${source}")
    endif()
  endforeach()
  set(${variable} ${kept} PARENT_SCOPE)
endfunction()

# Sources whose own code takes most of the time: oracles and brute force.
set(TIDEMARK_TESTS_THAT_COMPUTE "/(prop_[a-z]*|test_(graph_layout|optimum|profile_optimum|verify_random)).c$")

# One program for each folder; each of its files is a test.
tidemark_sources(TIDEMARK_TEST_SOURCES "${PROJECT_SOURCE_DIR}/tests/*/test_*.c"
                 "${PROJECT_SOURCE_DIR}/tests/prop/prop_*.c")
if(NOT TARGET tidemark_tool)
  list(FILTER TIDEMARK_TEST_SOURCES EXCLUDE REGEX "/tests/tool/")
endif()
# It counts accesses to memory by the calls that the thread sanitizer adds, and replaces functions of its library.
set(TIDEMARK_CACHE_LINES "${PROJECT_SOURCE_DIR}/tests/device/test_cache_lines.c")
list(REMOVE_ITEM TIDEMARK_TEST_SOURCES "${TIDEMARK_CACHE_LINES}")
if(TIDEMARK_SANITIZE STREQUAL "thread")
  tidemark_keep_threads(TIDEMARK_TEST_SOURCES)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    tidemark_harness_program(test_cache_lines "${TIDEMARK_CACHE_LINES}")
    target_compile_options(test_cache_lines PRIVATE -fno-sanitize=thread -D__SANITIZE_THREAD__)
    tidemark_test(test_cache_lines test_cache_lines)
  endif()
endif()
set(TIDEMARK_TEST_FOLDERS)
foreach(source IN LISTS TIDEMARK_TEST_SOURCES)
  string(REGEX REPLACE ".*/tests/([a-z]+)/.*" "\\1" folder "${source}")
  cmake_path(GET source STEM name)
  list(APPEND TIDEMARK_TEST_FOLDERS ${folder})
  list(APPEND TIDEMARK_TESTS_IN_${folder} "${source}")
  if(source MATCHES "${TIDEMARK_TESTS_THAT_COMPUTE}")
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  tidemark_test(${name} tests_${folder} --file ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${folder})
  # The simulated machine has no memory in which this sanitizer could find something, but where it is the subject.
  if(TIDEMARK_SANITIZE STREQUAL "address" AND NOT folder MATCHES "^(machine|conformance|replay)$")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT TIDE_TEST_HOST=1)
  endif()
endforeach()
list(REMOVE_DUPLICATES TIDEMARK_TEST_FOLDERS)
foreach(folder IN LISTS TIDEMARK_TEST_FOLDERS)
  tidemark_harness_program(tests_${folder} ${TIDEMARK_TESTS_IN_${folder}})
endforeach()
if(TARGET tests_tool)
  target_link_libraries(tests_tool PRIVATE tidemark_verbs)
endif()
if(TARGET tests_conformance)
  target_link_libraries(tests_conformance PRIVATE tidemark_conformance tidemark_static)
endif()
# A driver of CUDA without a device.
if(TARGET tests_machine)
  add_library(fake_cuda MODULE tests/machine/fake_cuda.c tests/machine/fake_cuda_rest.c)
  tidemark_flags(fake_cuda)
  target_include_directories(fake_cuda PRIVATE src tests)
  set_target_properties(fake_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_dependencies(tests_machine fake_cuda)
  target_compile_definitions(tests_machine PRIVATE "FAKE_CUDA=\"$<TARGET_FILE:fake_cuda>\"")
endif()
# One chooses processors and looks for pages; the other makes devices.
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/base/test_touch.c"
                            "${PROJECT_SOURCE_DIR}/tests/tool/test_written_files.c" PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)

# The corpora of the fuzz targets, without a fuzzer.
set(TIDEMARK_REPLAYED ${TIDEMARK_FUZZ_SOURCES})
if(TIDEMARK_SANITIZE STREQUAL "thread")
  tidemark_keep_threads(TIDEMARK_REPLAYED)
endif()
set(TIDEMARK_FUZZ_TABLE "")
tidemark_harness_program(tests_fuzz tests/replay_corpus.c)
foreach(source IN LISTS TIDEMARK_REPLAYED)
  cmake_path(GET source STEM name)
  file(STRINGS "${source}" starts_threads REGEX "^#define T_THREADS$")
  if(starts_threads)
    string(APPEND TIDEMARK_FUZZ_TABLE " X(${name}, true)")
  else()
    string(APPEND TIDEMARK_FUZZ_TABLE " X(${name}, false)")
  endif()
  add_library(replay_${name} OBJECT "${source}")
  tidemark_flags(replay_${name})
  target_include_directories(replay_${name} PRIVATE include src tests)
  target_compile_definitions(replay_${name} PRIVATE "LLVMFuzzerTestOneInput=${name}")
  target_compile_options(replay_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_link_libraries(tests_fuzz PRIVATE replay_${name})
  if(source IN_LIST TIDEMARK_FUZZ_OF_TOOL)
    target_link_libraries(replay_${name} PRIVATE tidemark_verbs)
  endif()
  tidemark_test(${name} tests_fuzz "[${name}]")
endforeach()
target_compile_definitions(tests_fuzz PRIVATE "FUZZ_TARGETS=${TIDEMARK_FUZZ_TABLE}")

# The whole command.
find_program(TIDEMARK_PYTHON python3)
mark_as_advanced(TIDEMARK_PYTHON)
set(TIDEMARK_COMMAND_PARTS)
set(TIDEMARK_VIEW_PARTS)
if(TIDEMARK_SANITIZE STREQUAL "thread")
  set(TIDEMARK_COMMAND_PARTS whatif_has whatif_takes)
  set(TIDEMARK_VIEW_PARTS settings)
endif()
# Under the address sanitizer, the quick tier asks the command by the scripts of verbs, the oracle and the package alone.
set(TIDEMARK_ALL_SCRIPTS TRUE)
if(TIDEMARK_SANITIZE AND NOT TIDEMARK_THOROUGH)
  set(TIDEMARK_ALL_SCRIPTS FALSE)
endif()
if(TARGET tidemark_tool AND TIDEMARK_PYTHON)
  # These verbs start threads.
  tidemark_test(command_plan "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_plan.py")
  tidemark_test(command_whatif "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_whatif.py"
                ${TIDEMARK_COMMAND_PARTS})
  tidemark_test(command_budgets "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_budgets.py"
                ${TIDEMARK_COMMAND_PARTS})
  if(NOT TIDEMARK_SANITIZE STREQUAL "thread")  # these verbs start no threads, and it holds signals back
    tidemark_test_program(monitor_publisher tests/monitor/publisher.c)
    tidemark_test_program(quota_member tests/quota/member.c)
    foreach(name help files terminal replay report top ledger numbers)
      tidemark_test(command_${name} "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_${name}.py")
    endforeach()
    tidemark_test(oracle "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/oracle/test_oracle.py")
    if(TIDEMARK_ALL_SCRIPTS)
      foreach(name stacks leaks manual plot leaks_jobs cuts)
        tidemark_test(${name} "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_${name}.py")
      endforeach()
      tidemark_test(command_why "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_why.py")
    endif()
  endif()
  if(NOT TIDEMARK_SANITIZE)  # these measure, or compare figures of many replays
    tidemark_test(long_recording "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-large")
    tidemark_test(recordings_tide "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-tide")
  endif()
  if(NOT TIDEMARK_SANITIZE STREQUAL "thread" AND NOT TIDEMARK_FUZZ)  # that sanitizer cannot be loaded into Python
    tidemark_test(python "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/python/run" "${PROJECT_BINARY_DIR}")
    set_property(TEST python APPEND PROPERTY ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
  endif()
  if(TIDEMARK_ALL_SCRIPTS OR TIDEMARK_SANITIZE STREQUAL "thread")
    tidemark_test(view "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_view.py" ${TIDEMARK_VIEW_PARTS})
    tidemark_test(serve "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_serve.py")
    tidemark_test(survey "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/test_survey.py")
  endif()
elseif(TARGET tidemark_tool)
  message(STATUS "python3 not found: the tests of the command as a whole and of the Python package are off")
endif()

# The page of tidemark view: its modules in node, which contain no C, and whole pages in a browser.
if(NOT TIDEMARK_SANITIZE)
  tidemark_test(page "${PROJECT_SOURCE_DIR}/tests/page/run")
endif()
if(TARGET tidemark_tool AND TIDEMARK_PYTHON AND TIDEMARK_ALL_SCRIPTS AND NOT TIDEMARK_SANITIZE STREQUAL "thread")
  tidemark_test(page_browser "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/page/test_browser.py")
  set(TIDEMARK_HOSTILE_PARTS)
  if(TIDEMARK_SANITIZE)
    set(TIDEMARK_HOSTILE_PARTS damaged contradictions)  # the others ask the browser more than the command
  endif()
  tidemark_test(page_hostile "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/page/test_hostile.py" ${TIDEMARK_HOSTILE_PARTS})
endif()

if(TIDEMARK_EXAMPLES)
  foreach(source IN LISTS TIDEMARK_EXAMPLE_SOURCES)
    cmake_path(GET source STEM name)
    tidemark_test(example_${name} example_${name})
  endforeach()
endif()

# The preload library under test programs and programs of this computer; the script is skipped under a sanitizer.
if(TIDEMARK_SANITIZE)
  tidemark_test(preload "${PROJECT_SOURCE_DIR}/tests/preload/run" "${PROJECT_BINARY_DIR}")
endif()

if(TIDEMARK_PYTORCH AND NOT TIDEMARK_FUZZ)
  include(cmake/shim_tests.cmake)
endif()

# Everything below checks the sources or a library without a sanitizer, so once is enough.
if(TIDEMARK_SANITIZE OR TIDEMARK_FUZZ)
  return()
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
  tidemark_test(pytorch_share "${PROJECT_BINARY_DIR}/tests/test_share_cpp")
endif()
if(TIDEMARK_PYTHON AND TIDEMARK_PYTORCH)
  tidemark_test(pytorch_versions "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/pytorch/tests/versions/test_versions.py")
  tidemark_test(pytorch_wheels "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/pytorch/tests/versions/test_wheels.py")
endif()
if(TIDEMARK_PYTHON AND TARGET tidemark_torch)
  tidemark_test(pytorch "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/pytorch/tests/run" "${PROJECT_BINARY_DIR}")
endif()
tidemark_test(layers "${PROJECT_SOURCE_DIR}/scripts/check-layers" "${PROJECT_BINARY_DIR}")
tidemark_test(layers_self_test "${PROJECT_SOURCE_DIR}/scripts/check-layers" --self-test)
tidemark_test(headers "${PROJECT_SOURCE_DIR}/scripts/check-headers")
tidemark_test(symbols "${PROJECT_SOURCE_DIR}/scripts/check-symbols" "${PROJECT_BINARY_DIR}")
if(TIDEMARK_PYTHON)
  tidemark_test(abi "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-abi")
  tidemark_test(header_examples "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-examples")
  tidemark_test(doc_constants "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-constants")
endif()
if(TARGET tidemark_tool)
  tidemark_test(demo "${PROJECT_SOURCE_DIR}/scripts/demo" $<TARGET_FILE:tidemark_tool>)
endif()
tidemark_test(readme "${PROJECT_SOURCE_DIR}/scripts/check-readme" "${PROJECT_BINARY_DIR}")
tidemark_test(dev "${PROJECT_SOURCE_DIR}/tests/dev/run" "${PROJECT_BINARY_DIR}")
if(TIDEMARK_INSTALL)
  tidemark_test(install "${PROJECT_SOURCE_DIR}/tests/install/run" "${PROJECT_BINARY_DIR}")
endif()
