# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Tests of the shim for PyTorch without PyTorch: it is compiled against models of PyTorch's headers, linked with a model
# of the running PyTorch, and driven on the host machine. pytorch/tests/versions/facts.py says what each version has.

check_language(CXX)
if(NOT CMAKE_CXX_COMPILER OR NOT TIDEMARK_PYTHON)
  message(STATUS "C++ compiler or python3 not found: the tests of the shim for PyTorch are off")
  return()
endif()
enable_language(CXX)
if(TIDEMARK_SANITIZE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL CMAKE_C_COMPILER_ID)
  message(STATUS "the C++ compiler is not of the C compiler's family: the tests of the shim for PyTorch are off")
  return()
endif()

set(TIDEMARK_SHIM "${PROJECT_SOURCE_DIR}/pytorch")
set(TIDEMARK_DRIVE "${TIDEMARK_SHIM}/tests/versions")
set(TIDEMARK_MODELS "${PROJECT_BINARY_DIR}/models")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${TIDEMARK_DRIVE}/facts.py"
             "${TIDEMARK_DRIVE}/make_models.py")
execute_process(COMMAND "${TIDEMARK_PYTHON}" -B "${TIDEMARK_DRIVE}/make_models.py" "${TIDEMARK_MODELS}"
                COMMAND_ERROR_IS_FATAL ANY)

tidemark_sources(TIDEMARK_SHIM_SOURCES "${TIDEMARK_SHIM}/shim*.cpp")
tidemark_sources(TIDEMARK_DRIVE_SOURCES "${TIDEMARK_DRIVE}/drive*.cpp" "${TIDEMARK_DRIVE}/model/model.cpp")

function(tidemark_shim_flags target version standard)
  set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard} CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests"
                        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_include_directories(${target} SYSTEM PRIVATE "${TIDEMARK_MODELS}/${version}" "${TIDEMARK_DRIVE}/model")
  target_include_directories(${target} PRIVATE include "${TIDEMARK_SHIM}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow ${TIDEMARK_SANITIZE_FLAGS}
                         $<$<BOOL:${TIDEMARK_WERROR}>:-Werror> $<$<CONFIG:RelWithDebInfo>:-O0>
                         "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
endfunction()

# The shim as one unit, because the headers take most of the time.
function(tidemark_shim_program version standard)
  add_library(shim_${version} OBJECT ${TIDEMARK_SHIM_SOURCES})
  set_target_properties(shim_${version} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  tidemark_shim_flags(shim_${version} ${version} ${standard})
  add_executable(test_shim_${version} ${TIDEMARK_DRIVE_SOURCES} $<TARGET_OBJECTS:shim_${version}>)
  tidemark_shim_flags(test_shim_${version} ${version} ${standard})
  target_link_options(test_shim_${version} PRIVATE ${TIDEMARK_SANITIZE_FLAGS})
  target_link_libraries(test_shim_${version} PRIVATE tidemark_static Threads::Threads ${CMAKE_DL_LIBS})
  add_library(model_pluggable_${version} MODULE "${TIDEMARK_MODELS}/${version}/pluggable.cpp")
  tidemark_shim_flags(model_pluggable_${version} ${version} ${standard})
  target_compile_options(model_pluggable_${version} PRIVATE -w -fno-sanitize=all)
  add_dependencies(test_shim_${version} model_pluggable_${version})
  foreach(policy torch tide)
    tidemark_test(pytorch_shim_${version}_${policy} test_shim_${version} policy:${policy}
                  "${PROJECT_BINARY_DIR}/tests")
  endforeach()
endfunction()

set(TIDEMARK_SHIM_CLASSES "hidden=none")
tidemark_shim_program(2.11 17)
if(TIDEMARK_SANITIZE STREQUAL "thread")
  # The versions differ in no lock.
elseif(TIDEMARK_THOROUGH)
  list(APPEND TIDEMARK_SHIM_CLASSES "other=2.8")
  tidemark_shim_program(2.8 17)
  tidemark_shim_program(2.16 20)
else()
  foreach(name 2.8_torch 2.8_tide 2.16_torch 2.16_tide other)
    tidemark_test(pytorch_shim_${name} /bin/sh -c
                  "echo 'skip all: only in the thorough tier' && echo '0 passed, 0 failed, 1 skipped' && exit 77")
  endforeach()
endif()

# Virtual memory does not work.
tidemark_test(pytorch_shim_plain test_shim_2.11 policy:tide "${PROJECT_BINARY_DIR}/tests" contents)
set_property(TEST pytorch_shim_plain APPEND PROPERTY ENVIRONMENT DRIVE_NO_VIRTUAL=1)

# PyTorch's class has other slots than the headers, or is not exported.
foreach(pair IN LISTS TIDEMARK_SHIM_CLASSES)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 version)
  tidemark_test(pytorch_shim_${name} test_shim_2.11 policy:tide "${PROJECT_BINARY_DIR}/tests" contents)
  set_property(TEST pytorch_shim_${name} APPEND PROPERTY ENVIRONMENT "DRIVE_PLUGGABLE=${version}")
endforeach()
