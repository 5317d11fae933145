# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Tests: each tests/*/test_*.c and tests/prop/prop_*.c is a program and a test of the same name; those in tests/tool also
# link the objects of the tool. Then the corpus of each fuzz/fuzz_*.c, as a test of the same name, the whole command, and
# checks of the tree and of an installation. Every test ends with a line `N passed, N failed, N skipped`.

# The program under test, the folder of test data, and settings of the checks below.
set(TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_SOURCE=${PROJECT_SOURCE_DIR}" "TIDEMARK_SANITIZE=${TIDEMARK_SANITIZE}")
if(TARGET tidemark_tool)
  list(APPEND TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_BIN=$<TARGET_FILE:tidemark_tool>")
endif()
if(TARGET tidemark_mpi)
  list(APPEND TIDEMARK_TEST_ENVIRONMENT "TIDEMARK_MPI_BIN=$<TARGET_FILE:tidemark_mpi>"
       "TIDEMARK_MPIRUN=${MPIEXEC_EXECUTABLE}")
endif()

# The approximate seconds of tests that take more than one. Long tests start first, so that no processor waits for the
# last of them. ./dev uses the file to estimate the remaining time.
set(TIDEMARK_TEST_COSTS oracle=45 python=30 pytorch_versions=20 plot=20 survey=20 view=30 page=8 page_browser=60 page_hostile=120 test_roundtrip=16 command=15
    install=15 preload=15
    command_numbers=14 fuzz_cpu=14 prop_device=12 cuts=10 dev=10 leaks=9 test_cpu_threads=9 fuzz_plan=8
    test_recordings=8 test_tide=8 test_verify_random=7 leaks_jobs=6 prop_tide=6 test_ledger=6 test_optimum=6
    test_tide_order=6 command_why=5 prop_pinned=5 prop_plan=5 prop_soak=5 pytorch_shim_2.11_tide=5
    pytorch_shim_2.11_torch=5 pytorch_shim_2.14_tide=5 pytorch_shim_2.14_torch=5 pytorch_shim_2.8_tide=5
    pytorch_shim_2.8_torch=5 test_profile_optimum=5 fuzz_pinned=4 test_cpu_fork=4 test_pinned_faults=4
    test_plan_limits=4 fuzz_graph=3 fuzz_profile=3 prop_cpu=3 prop_faults=3 prop_graph=3 prop_ledger=3
    prop_profile=3 stacks=3 test_shares=3 test_threads=3 headers=2 long_recording=2 pytorch=2 test_crowds=2
    test_fallback=2 test_incremental=2 test_profile_recordings=2 test_stream=2 serve=45
    test_quota_file=3 test_quota_processes=4)
set(TIDEMARK_TEST_COSTS_FILE "${PROJECT_BINARY_DIR}/test_costs")
file(WRITE "${TIDEMARK_TEST_COSTS_FILE}" "")

function(tidemark_test name)
  set(cost 1)
  if(";${TIDEMARK_TEST_COSTS};" MATCHES ";${name}=([0-9]+);")
    set(cost ${CMAKE_MATCH_1})
  endif()
  file(APPEND "${TIDEMARK_TEST_COSTS_FILE}" "${name} ${cost}\n")
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TIDEMARK_TEST_TIMEOUT} SKIP_RETURN_CODE 77 COST ${cost}
                       ENVIRONMENT "${TIDEMARK_TEST_ENVIRONMENT}")
endfunction()

# Programs that start no thread; in them a call of pthread_create() fails the test. The thread sanitizer can find nothing
# in them, so its pass leaves them out.
set(TIDEMARK_TESTS_OF_ONE_THREAD prop_graph prop_ledger replay_fuzz_graph replay_fuzz_json
    replay_fuzz_minimalloc replay_fuzz_native replay_fuzz_options replay_fuzz_pickle replay_fuzz_pinned
    replay_fuzz_problem replay_fuzz_profile_plan replay_fuzz_rmm test_action test_base test_bins test_chrome
    test_budget_pace test_budgets test_cpu_badinput test_cpu_fill test_crowds test_curve test_cut test_display test_dry test_emit test_folded test_format test_frames
    test_graph_in_place test_graph_layout test_graph_lifetimes test_graph_roles test_help test_incremental test_json
    test_ledger test_lifetimes test_limit test_magazine test_memory_raw test_minimalloc test_native test_native_damage test_optimum
    test_open test_options test_parks test_pickle test_plan_pools test_planner_checks test_planner_faults test_planner_outputs
    test_planner_results test_planner_sizes test_pprof test_problem test_profile_auto test_profile_faults
    test_profile_file test_profile_optimum test_profile_plan test_profile_recordings test_profile_upstream
    test_profile_verify test_recorded test_recordings test_records test_refusals test_rmm
    test_roundtrip test_size test_steps test_stitch test_survey test_tide_chaos test_timeline test_trace test_tree test_verify test_verify_random test_watch)

# Programs whose own code takes most of the time: oracles and brute force.
set(TIDEMARK_TESTS_THAT_COMPUTE "^(prop_|replay_fuzz_|test_(graph_layout|ledger|optimum|profile_optimum|verify_random)$)")

# A test program. Its own code is hardly optimised, because that would take most of the build time.
function(tidemark_test_program name)
  tidemark_program(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  if(TIDEMARK_SANITIZE AND NOT name MATCHES "${TIDEMARK_TESTS_THAT_COMPUTE}")
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  if(name IN_LIST TIDEMARK_TESTS_OF_ONE_THREAD)
    target_compile_definitions(${name} PRIVATE T_HAS_ONE_THREAD)
    target_link_options(${name} PRIVATE LINKER:--wrap=pthread_create)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

tidemark_sources(TIDEMARK_TEST_SOURCES "${PROJECT_SOURCE_DIR}/tests/*/test_*.c"
                 "${PROJECT_SOURCE_DIR}/tests/prop/prop_*.c")
if(NOT TARGET tidemark_tool)
  list(FILTER TIDEMARK_TEST_SOURCES EXCLUDE REGEX "/tests/tool/")
endif()
if(NOT TIDEMARK_SANITIZE STREQUAL "thread" OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # It counts accesses to memory by the calls that this sanitizer adds, and replaces functions of its library.
  list(FILTER TIDEMARK_TEST_SOURCES EXCLUDE REGEX "/test_cache_lines.c$")
endif()
foreach(source IN LISTS TIDEMARK_TEST_SOURCES)
  cmake_path(GET source STEM name)
  if(TIDEMARK_SANITIZE STREQUAL "thread" AND name IN_LIST TIDEMARK_TESTS_OF_ONE_THREAD)
    continue()
  endif()
  tidemark_test_program(${name} "${source}")
  if(source MATCHES "/tests/tool/")
    target_link_libraries(${name} PRIVATE tidemark_verbs)
  elseif(source MATCHES "/tests/conformance/")
    target_link_libraries(${name} PRIVATE tidemark_conformance tidemark_static)
  endif()
  tidemark_test(${name} ${name})
endforeach()
if(TARGET test_cache_lines)
  target_compile_options(test_cache_lines PRIVATE -fno-sanitize=thread -D__SANITIZE_THREAD__)
endif()
target_compile_definitions(test_touch PRIVATE _GNU_SOURCE)  # it chooses processors and looks for pages

# The corpus of each fuzz target, without a fuzzer.
foreach(source IN LISTS TIDEMARK_FUZZ_SOURCES)
  cmake_path(GET source STEM name)
  if(TIDEMARK_SANITIZE STREQUAL "thread" AND "replay_${name}" IN_LIST TIDEMARK_TESTS_OF_ONE_THREAD)
    continue()
  endif()
  tidemark_test_program(replay_${name} "${source}" tests/replay_corpus.c)
  target_compile_definitions(replay_${name} PRIVATE "FUZZ_TARGET=\"${name}\"")
  if(source IN_LIST TIDEMARK_FUZZ_OF_TOOL)
    target_link_libraries(replay_${name} PRIVATE tidemark_verbs)
  endif()
  tidemark_test(${name} replay_${name})
endforeach()

# The whole command.
find_program(TIDEMARK_PYTHON python3)
mark_as_advanced(TIDEMARK_PYTHON)
set(TIDEMARK_COMMAND_PARTS)
set(TIDEMARK_VIEW_PARTS)
if(TIDEMARK_SANITIZE STREQUAL "thread")
  set(TIDEMARK_COMMAND_PARTS plan whatif_has whatif_takes)  # the verbs that start threads
  set(TIDEMARK_VIEW_PARTS settings)
endif()
if(TARGET tidemark_tool AND TIDEMARK_PYTHON)
  tidemark_test(command "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/run" ${TIDEMARK_COMMAND_PARTS})
  tidemark_test(command_numbers "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/run-numbers"
                ${TIDEMARK_COMMAND_PARTS})
  tidemark_test(command_budgets "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/budgets"
                ${TIDEMARK_COMMAND_PARTS})
  if(NOT TIDEMARK_SANITIZE STREQUAL "thread")  # these verbs start no threads, and it holds signals back
    tidemark_test_program(monitor_publisher tests/monitor/publisher.c)
    tidemark_test(command_top "${CMAKE_COMMAND}" -E env "TIDEMARK_PUBLISHER=$<TARGET_FILE:monitor_publisher>"
                  "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/run-top")
    tidemark_test_program(quota_member tests/quota/member.c)
    tidemark_test(command_ledger "${CMAKE_COMMAND}" -E env "TIDEMARK_MEMBER=$<TARGET_FILE:quota_member>"
                  "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/run-ledger")
    tidemark_test(stacks "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/stacks")
    tidemark_test(leaks "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/leaks")
    tidemark_test(manual "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/manual")
    tidemark_test(plot "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/plot")
    tidemark_test(leaks_jobs "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/leaks-jobs")
    tidemark_test(oracle "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/oracle/run")
    tidemark_test(cuts "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/cuts")
    tidemark_test(command_why "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/why")
  endif()
  if(NOT TIDEMARK_SANITIZE)  # these measure, or compare figures of many replays
    tidemark_test(long_recording "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-large")
    tidemark_test(recordings_tide "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/check-tide")
  endif()
  if(NOT TIDEMARK_SANITIZE STREQUAL "thread" AND NOT TIDEMARK_FUZZ)  # that sanitizer cannot be loaded into Python
    tidemark_test(python "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/python/run" "${PROJECT_BINARY_DIR}")
    set_property(TEST python APPEND PROPERTY ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
  endif()
  tidemark_test(view "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/view" ${TIDEMARK_VIEW_PARTS})
  tidemark_test(serve "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/serve")
  tidemark_test(survey "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tool/survey")
elseif(TARGET tidemark_tool)
  message(STATUS "python3 not found: the tests of the command as a whole and of the Python package are off")
endif()

# The page of tidemark view: its modules in node, which contain no C, and whole pages in a browser.
if(NOT TIDEMARK_SANITIZE)
  tidemark_test(page "${PROJECT_SOURCE_DIR}/tests/page/run")
endif()
if(TARGET tidemark_tool AND TIDEMARK_PYTHON AND NOT TIDEMARK_SANITIZE STREQUAL "thread")
  tidemark_test(page_browser "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/page/browser")
  set(TIDEMARK_HOSTILE_PARTS)
  if(TIDEMARK_SANITIZE)
    set(TIDEMARK_HOSTILE_PARTS damaged contradictions)  # the others ask the browser more than the command
  endif()
  tidemark_test(page_hostile "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/page/hostile" ${TIDEMARK_HOSTILE_PARTS})
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
  tidemark_test(pytorch_versions "${TIDEMARK_PYTHON}" "${PROJECT_SOURCE_DIR}/pytorch/tests/versions/check")
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
tidemark_test(readme "${PROJECT_SOURCE_DIR}/scripts/check-readme" "${PROJECT_BINARY_DIR}")
tidemark_test(dev "${PROJECT_SOURCE_DIR}/tests/dev/run" "${PROJECT_BINARY_DIR}")
if(TIDEMARK_INSTALL)
  tidemark_test(install "${PROJECT_SOURCE_DIR}/tests/install/run" "${PROJECT_BINARY_DIR}")
endif()
